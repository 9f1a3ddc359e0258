"""In-memory control store for tests and simulations, with the semantics of etcd."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from rocketq.replication.control import Entry, Group, GroupView, LeaseLostError, Transaction, view_of
from rocketq.runtime.clock import Clock


@dataclass(slots=True)
class _Lease:
    ttl_ms: int
    ends_ms: int


class ControlTable:
    """Keys, revisions and leases. Pure: time is an argument; leases expire at the next call."""

    def __init__(self) -> None:
        self.revision = 1
        self._entries: dict[str, Entry] = {}
        self._changed: dict[str, int] = {}  # revision of the last change, by the group's prefix
        self._leases: dict[int, _Lease] = {}
        self._last_lease = 0

    def view(self, group: Group, now_ms: int) -> GroupView:
        self.expire(now_ms)
        own = {
            key.removeprefix(group.prefix): entry
            for key, entry in self._entries.items()
            if key.startswith(group.prefix)
        }
        return view_of(own, self.revision)

    def commit(self, group: Group, change: Transaction, now_ms: int) -> int | None:
        self.expire(now_ms)
        for key, revision in change.compares:
            entry = self._entries.get(group.prefix + key)
            if (entry.revision if entry else 0) != revision:
                return None
        for put in change.puts:
            if put.lease_id and put.lease_id not in self._leases:
                raise LeaseLostError("the lease to put a key with has expired")
        self.revision += 1
        for put in change.puts:
            self._entries[group.prefix + put.key] = Entry(put.value, self.revision, put.lease_id)
        for key in change.deletes:
            self._entries.pop(group.prefix + key, None)
        self._changed[group.prefix] = self.revision
        return self.revision

    def grant(self, ttl_ms: int, now_ms: int) -> int:
        self._last_lease += 1
        self._leases[self._last_lease] = _Lease(ttl_ms, now_ms + ttl_ms)
        return self._last_lease

    def keep_alive(self, lease_id: int, now_ms: int) -> None:
        self.expire(now_ms)
        lease = self._leases.get(lease_id)
        if lease is None:
            raise LeaseLostError("the lease has expired")
        lease.ends_ms = now_ms + lease.ttl_ms

    def revoke(self, lease_id: int) -> None:
        if self._leases.pop(lease_id, None) is not None:
            self._drop_keys({lease_id})

    def changed_after(self, group: Group, revision: int, now_ms: int) -> bool:
        self.expire(now_ms)
        return self._changed.get(group.prefix, 0) > revision

    def expire(self, now_ms: int) -> None:
        over = {lease_id for lease_id, lease in self._leases.items() if lease.ends_ms <= now_ms}
        if over:
            for lease_id in over:
                del self._leases[lease_id]
            self._drop_keys(over)

    def _drop_keys(self, lease_ids: set[int]) -> None:
        gone = [key for key, entry in self._entries.items() if entry.lease_id in lease_ids]
        if gone:
            self.revision += 1
        for key in gone:
            del self._entries[key]
            cluster, broker_name, _ = key.split("/", 2)
            self._changed[Group(cluster, broker_name).prefix] = self.revision


class MemoryControl:
    """A ControlTable behind the ControlStore interface. Replicas of one process share the table."""

    def __init__(self, clock: Clock, table: ControlTable | None = None) -> None:
        self._clock = clock
        self.table = table or ControlTable()

    async def read(self, group: Group) -> GroupView:
        return self.table.view(group, self._clock.monotonic_ms())

    async def commit(self, group: Group, change: Transaction) -> int | None:
        return self.table.commit(group, change, self._clock.monotonic_ms())

    async def grant(self, ttl_ms: int) -> int:
        return self.table.grant(ttl_ms, self._clock.monotonic_ms())

    async def keep_alive(self, lease_id: int) -> None:
        self.table.keep_alive(lease_id, self._clock.monotonic_ms())

    async def revoke(self, lease_id: int) -> None:
        self.table.revoke(lease_id)

    async def wait_for_change(self, group: Group, after_revision: int, timeout_ms: int) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_ms / 1000):
                while not self.table.changed_after(group, after_revision, self._clock.monotonic_ms()):
                    await asyncio.sleep(0.01)
        return self.table.changed_after(group, after_revision, self._clock.monotonic_ms())

    async def close(self) -> None:
        return None
