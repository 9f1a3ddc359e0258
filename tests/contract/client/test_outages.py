"""Clients during outages, with our broker; the same scenes run with Apache's brokers in tests/interop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from rocketq.testing.embedded import EmbeddedCluster

from .outage_scenes import OUTAGES, Scene


@pytest.fixture(scope="module")
def single() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        yield running


@pytest.mark.parametrize("scene", OUTAGES, ids=lambda scene: scene.__name__)
def test_with_our_broker(single: EmbeddedCluster, topic: str, group: str, scene: Scene) -> None:
    asyncio.run(asyncio.wait_for(scene(single.name_server_addr, topic, group[:60]), 90))
