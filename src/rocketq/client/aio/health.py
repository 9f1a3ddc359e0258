"""How a session is, for people and probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class TellsHealth(Protocol):
    """A member that has something to say."""

    def health(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHealth:
    """`brokers` of the routes in use by address, True where a connection is open; a broker nobody needed yet has none.

    `routes` are the ages of remembered routes by topic. `members` is what producers and consumers say of themselves.
    """

    client_id: str
    name_servers: Mapping[str, bool]
    brokers: Mapping[str, bool]
    routes: Mapping[str, int]
    members: tuple[Mapping[str, Any], ...]
    closed: bool
