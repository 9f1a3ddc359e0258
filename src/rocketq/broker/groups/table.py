"""Configured consumer groups. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigTable
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import Perm
from rocketq.protocol.names import SYSTEM_GROUP_PREFIX, group_fault
from rocketq.remoting import RequestRejected

GROUP_COUNT_MAX: Final = 50_000

GroupListener = Callable[[], None]

BUILTIN_GROUPS: Final = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)


class GroupTable:
    """Group settings by name. Each change increments the version and calls the listeners."""

    def __init__(self, *, is_copy: bool = False, count_max: Callable[[], int] = lambda: GROUP_COUNT_MAX) -> None:
        """`is_copy`: a slave's table, which only its master's replaces; unknown groups get default settings."""
        self._groups = {name: GroupConfig(group=name) for name in BUILTIN_GROUPS}
        self._forbidden: dict[str, dict[str, int]] = {}  # revoked permissions by group and topic
        self.data_version = DataVersion()
        self._is_copy = is_copy
        self._count_max = count_max
        self.listeners: list[GroupListener] = []

    @property
    def is_copy(self) -> bool:
        return self._is_copy

    def become_original(self) -> None:
        """This broker became the master: it may change the table."""
        self._is_copy = False

    def load(self, table: GroupConfigTable) -> None:
        """Load saved entries over the built-in ones."""
        self._groups |= table.groups
        self._forbidden = {group: dict(topics) for group, topics in (table.forbidden or {}).items()}
        self.data_version = table.data_version

    def replace(self, table: GroupConfigTable) -> None:
        """Replace the table and its version by the master's."""
        self._groups = dict(table.groups)
        self._forbidden = {group: dict(topics) for group, topics in (table.forbidden or {}).items()}
        self.data_version = table.data_version
        self._notify()

    def snapshot(self) -> GroupConfigTable:
        forbidden = {group: dict(topics) for group, topics in self._forbidden.items()}
        return GroupConfigTable(data_version=self.data_version, groups=dict(self._groups), forbidden=forbidden or None)

    def get(self, group: str) -> GroupConfig | None:
        return self._groups.get(group)

    def names(self) -> list[str]:
        return sorted(self._groups)

    def find(self, group: str, *, auto_create: bool, now_ms: int) -> GroupConfig | None:
        """The group's settings; created if it is missing, auto-creation is allowed and the name is valid."""
        known = self._groups.get(group)
        if known is not None or not (auto_create or group.startswith(SYSTEM_GROUP_PREFIX)) or group_fault(group):
            return known
        fresh = GroupConfig(group=group)
        if not self._is_copy:
            self.put(fresh, now_ms=now_ms)
        return fresh

    def limit_fault(self, *names: str) -> str | None:
        """Why these groups cannot be added, or None."""
        fresh = {name for name in names if name not in self._groups}
        count_max = self._count_max()
        if not fresh or len(self._groups) + len(fresh) <= count_max:
            return None
        return f"group limit reached (maxSubscriptionGroupNums={count_max}): group {min(fresh)} is not created"

    def put(self, *groups: GroupConfig, now_ms: int) -> None:
        """Add or replace groups; RequestRejected if there would be too many."""
        if (fault := self.limit_fault(*(group.group for group in groups))) is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, fault)
        self._groups |= {group.group: group for group in groups}
        self._changed(now_ms)

    def delete(self, group: str, *, now_ms: int) -> bool:
        """Delete a group; returns whether it existed."""
        if self._groups.pop(group, None) is None:
            return False
        self._forbidden.pop(group, None)
        self._changed(now_ms)
        return True

    def may_read(self, group: str, topic: str) -> bool:
        return not self._forbidden.get(group, {}).get(topic, 0) & Perm.READ

    def allow_reading(self, group: str, topic: str, allowed: bool, *, now_ms: int) -> None:
        """Allow or forbid a group to read a topic; the default is to allow."""
        if self.may_read(group, topic) == allowed:
            return
        topics = self._forbidden.setdefault(group, {})
        topics[topic] = topics.get(topic, 0) ^ Perm.READ
        if not topics[topic]:
            del topics[topic]
        if not topics:
            del self._forbidden[group]
        self._changed(now_ms)

    def _changed(self, now_ms: int) -> None:
        self.data_version = self.data_version.next(now_ms)
        self._notify()

    def _notify(self) -> None:
        for listener in self.listeners:
            listener()
