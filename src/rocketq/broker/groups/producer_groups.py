"""Producers that are connected, by group."""

from __future__ import annotations

from rocketq.broker.groups.members import Link, Roster


class ProducerGroups(Roster[Link]):
    """A roster; producers have nothing beyond being there."""
