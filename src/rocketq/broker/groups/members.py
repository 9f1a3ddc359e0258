"""Members of groups by connection, with the time of their last heartbeat. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rocketq.protocol.flags import Language

ConnectionT = TypeVar("ConnectionT", bound=Hashable)
"""The connection of a client; this module only compares it."""


@dataclass(frozen=True, slots=True)
class Member(Generic[ConnectionT]):
    connection: ConnectionT
    client_id: str
    language: Language
    version: int
    updated_ms: int = 0


@dataclass(slots=True)
class Departures(Generic[ConnectionT]):
    """Expired connections, and the groups they were in."""

    connections: set[ConnectionT] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)


class Roster(Generic[ConnectionT]):
    """Members by group and connection. Groups without members are removed."""

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
        """A member by client id, of one group or of any."""
        groups = self._groups if group is None else {group: self._groups.get(group, {})}
        for members in groups.values():
            for member in members.values():
                if member.client_id == client_id:
                    return member
        return None

    def groups_of(self, connection: ConnectionT) -> set[str]:
        """The groups a connection is in."""
        return set(self._groups_of.get(connection, ()))

    def put(self, group: str, member: Member[ConnectionT]) -> bool:
        """Add or update a member; returns whether its connection is new to the group."""
        members = self._groups.setdefault(group, {})
        fresh = member.connection not in members
        members[member.connection] = member
        self._groups_of.setdefault(member.connection, set()).add(group)
        return fresh

    def remove(self, group: str, connection: ConnectionT) -> bool:
        """Remove a member; returns whether it was one."""
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
        """Remove a connection; returns its groups."""
        groups = sorted(self._groups_of.get(connection, ()))
        for group in groups:
            self.remove(group, connection)
        return groups

    def expire(self, heard_before_ms: int) -> Departures[ConnectionT]:
        """Remove members whose last heartbeat is older."""
        gone: Departures[ConnectionT] = Departures()
        for group in list(self._groups):
            for member in self.members(group):
                if member.updated_ms < heard_before_ms:
                    self.remove(group, member.connection)
                    gone.connections.add(member.connection)
                    gone.groups.add(group)
        return gone


class ProducerGroups(Roster[ConnectionT]):
    """Connected producers by group."""
