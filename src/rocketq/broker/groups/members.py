"""Clients as groups see them: who is behind a connection, and since when nothing was heard of them."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rocketq.protocol.flags import Language

ConnectionT = TypeVar("ConnectionT", bound=Hashable)
"""What a client is reached by: a connection. The cores only compare it."""


@dataclass(frozen=True, slots=True)
class Member(Generic[ConnectionT]):
    connection: ConnectionT
    client_id: str
    language: Language
    version: int
    updated_ms: int = 0


@dataclass(slots=True)
class Departures(Generic[ConnectionT]):
    """Who left at once, and which groups miss somebody."""

    connections: set[ConnectionT] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class Roster(Generic[ConnectionT]):
    """Members by group and connection. A group without members is forgotten."""

    def __init__(self) -> None:
        self._groups: dict[str, dict[ConnectionT, Member[ConnectionT]]] = {}
        self._groups_of: dict[ConnectionT, set[str]] = {}

    def __contains__(self, group: object) -> bool:
        return group in self._groups

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def members(self, group: str) -> list[Member[ConnectionT]]:
        return list(self._groups.get(group, {}).values())

    def client(self, client_id: str, group: str | None = None) -> Member[ConnectionT] | None:
        """A member by its client id, of one group or of any."""
        groups = self._groups if group is None else {group: self._groups.get(group, {})}
        for members in groups.values():
            for member in members.values():
                if member.client_id == client_id:
                    return member
        return None

    def put(self, group: str, member: Member[ConnectionT]) -> bool:
        """Whether its connection is new to the group."""
        members = self._groups.setdefault(group, {})
        fresh = member.connection not in members
        members[member.connection] = member
        self._groups_of.setdefault(member.connection, set()).add(group)
        return fresh

    def remove(self, group: str, connection: ConnectionT) -> bool:
        """Whether it was a member."""
        members = self._groups.get(group, {})
        if members.pop(connection, None) is None:
            return False
        if not members:
            del self._groups[group]
        groups = self._groups_of[connection]
        groups.discard(group)
        if not groups:
            del self._groups_of[connection]
        return True

    def disconnect(self, connection: ConnectionT) -> list[str]:
        """The groups it was in."""
        groups = sorted(self._groups_of.get(connection, ()))
        for group in groups:
            self.remove(group, connection)
        return groups

    def expire(self, heard_before_ms: int) -> Departures[ConnectionT]:
        """Remove members that were last heard of before this time."""
        gone: Departures[ConnectionT] = Departures()
        for group in list(self._groups):
            for member in self.members(group):
                if member.updated_ms < heard_before_ms:
                    self.remove(group, member.connection)
                    gone.connections.add(member.connection)
                    gone.groups.add(group)
        return gone


class ProducerGroups(Roster[ConnectionT]):
    """A roster; producers have nothing beyond being there."""
