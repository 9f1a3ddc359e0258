"""Collects metrics from the tables of a running broker: connections, topics, transactions, delays, storage."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.delay.subsystem import DelaySubsystem
from rocketq.broker.groups.subsystem import GroupSubsystem
from rocketq.broker.stats import families
from rocketq.broker.stats.broker_metrics import truth
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.broker.stats.lag_metrics import LagCollector
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction.subsystem import TransactionSubsystem
from rocketq.protocol.bodies.stats import ReplicationState
from rocketq.protocol.flags import ConsumeType
from rocketq.protocol.names import TIMER_TOPIC, is_system_group
from rocketq.protocol.versions import version_name
from rocketq.remoting import Connection, Server
from rocketq.runtime.clock import Clock
from rocketq.runtime.metrics import Snapshot
from rocketq.store import StoreReader

_STORAGE: Final = ("local", "disk")
_PROCESSORS: Final = (
    "send", "async_put", "pull", "ack", "query_message", "client_manager", "heartbeat", "lite_pull", "transaction",
    "consumer_manager", "admin", "reply",
)  # fmt: skip
_MODES: Final = {
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_POP: "pop",
}
_STEP: Final = 64
_SIZES_LIFE_MS: Final = 15_000


@dataclass(frozen=True, slots=True)
class BrokerTables:
    """What the collectors read."""

    settings: Settings
    store: StoreReader
    topics: TopicTable
    groups: GroupSubsystem
    transactions: TransactionSubsystem
    delay: DelaySubsystem
    stats: BrokerStats
    lag: LagCollector
    clock: Clock
    held_pulls: Callable[[], int]
    servers: Callable[[], list[Server]]
    waiting_answers: Callable[[], int]
    replication: Callable[[], ReplicationState]
    before: Callable[[], None]
    """Collects what the fast path has counted."""


class StoreSizes:
    """Bytes of a store's files by part. Directories are listed at most every 15 s, one per step."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sizes: dict[str, int] = {}
        self._read_ms = -_SIZES_LIFE_MS

    def collect(self, log_dir: Path, now_ms: int, snapshot: Snapshot) -> Iterator[None]:
        if now_ms - self._read_ms >= _SIZES_LIFE_MS:
            self._read_ms = now_ms
            sizes: Counter[str] = Counter()
            for part, folder in (
                ("commitlog", log_dir), ("consumequeue", self._root / "consumequeue"), ("index", self._root / "index"),
                ("timer", self._root / "timerlog"), ("timer", self._root / "timerwheel"),
                ("other", self._root / "config"),
            ):  # fmt: skip
                sizes[part] += 0
                for size in _file_sizes(folder):
                    sizes[part] += size
                    yield
            self._sizes = dict(sizes)
        for part, size in self._sizes.items():
            snapshot.add(families.STORE_BYTES, (part,), size)


def _file_sizes(folder: Path) -> Iterator[int]:
    """Sizes of all files below a folder, or of a file."""
    folders = [str(folder)]
    if folder.is_file():
        yield folder.stat().st_size
        return
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    else:
                        yield entry.stat(follow_symlinks=False).st_size
        except OSError:
            continue  # it was deleted in the meantime


class BrokerCollector:
    """Adds all samples of a broker to a snapshot, in steps."""

    def __init__(self, tables: BrokerTables) -> None:
        self._tables = tables
        self._sizes = StoreSizes(tables.store.config.root)
        self._bounds = dict.fromkeys(families.TIMER_BOUNDS_S, 0)
        self._bounds_ms = 0

    def __call__(self, snapshot: Snapshot) -> Iterator[None]:
        tables = self._tables
        tables.before()
        yield from tables.stats.metrics.collect(snapshot)
        self._tables_and_role(snapshot)
        self._replication(snapshot)
        yield from self._connections(snapshot)
        yield from self._transactions(snapshot)
        yield from self._delays(snapshot)
        yield from self._storage(snapshot)
        yield from tables.lag.collect(snapshot)

    def _tables_and_role(self, snapshot: Snapshot) -> None:
        tables, config = self._tables, self._tables.settings.config
        snapshot.add(families.PERMISSION, (), config.perm)
        snapshot.add(families.TOPICS, (), len(tables.topics))
        snapshot.add(families.GROUPS, (), len(tables.groups.table.names()))
        for role in ("master", "slave"):
            snapshot.add(families.ROLE, (role,), int((role == "slave") == config.is_slave))
        for processor in _PROCESSORS:
            snapshot.add(families.WATERMARK, (processor,), tables.held_pulls() if processor == "pull" else 0)
        snapshot.add(families.HELD_PULLS, ("pull",), tables.held_pulls())
        snapshot.add(families.FLUSH_WAITING, (), tables.waiting_answers())

    def _replication(self, snapshot: Snapshot) -> None:
        """Replicas are named by host, and numbered where a host has several: the port of a slave changes."""
        state, seen = self._tables.replication(), Counter[str]()
        for link in state.replicas:
            host = link.addr.rpartition(":")[0] or link.addr
            seen[host] += 1
            name = host if seen[host] == 1 else f"{host}#{seen[host]}"
            snapshot.add(families.REPLICATION_LAG, (name,), max(0, link.behind_bytes))
            snapshot.add(families.IN_SYNC, (name,), int(link.in_sync))
        if not state.is_master:
            snapshot.add(families.FOLLOWING, (), int(bool(state.master.active)))

    def _connections(self, snapshot: Snapshot) -> Iterator[None]:
        groups = self._tables.groups
        producers: dict[Connection, tuple[str, str]] = {}
        for group in list(groups.producers):
            for member in groups.producers.members(group):
                producers[member.connection] = member.language.name.lower(), version_name(member.version).lower()
            yield
        for (language, version), count in Counter(producers.values()).items():
            snapshot.add(families.PRODUCER_CONNECTIONS, (language, version, "remoting"), count)
        for name in groups.consumers.names():
            online = groups.consumers.get(name)
            mode = _MODES.get(online.consume_type, "push") if online is not None else "push"
            for member in groups.consumers.members(name):
                labels = (
                    name, member.language.name.lower(), version_name(member.version).lower(), mode, "remoting",
                    truth(is_system_group(name)),
                )  # fmt: skip
                snapshot.add(families.CONSUMER_CONNECTIONS, labels, 1)
            yield
        open_count: Counter[str] = Counter({"false": 0})
        paused = 0
        days_left: float | None = None
        for server in self._tables.servers():
            days_left = server.certificate_days_left
            for number, connection in enumerate(server.connections):
                open_count[truth(connection.is_encrypted)] += 1
                paused += connection.writes_paused
                if number % _STEP == 0:
                    yield
        for encrypted, count in open_count.items():
            snapshot.add(families.CONNECTIONS, ("remoting", encrypted), count)
        snapshot.add(families.PAUSED, (), paused)
        if days_left is not None:
            snapshot.add(families.CERTIFICATE_DAYS, (), days_left)

    def _transactions(self, snapshot: Snapshot) -> Iterator[None]:
        now_ms = self._tables.clock.now_ms()
        for number, one in enumerate(list(self._tables.transactions.service.ledger)):
            snapshot.add(families.HALF_MESSAGES, (one.topic,), 1)
            snapshot.add(families.HALF_OLDEST, (one.topic,), max(0, now_ms - one.born_ms) / 1000)
            if number % _STEP == 0:
                yield

    def _delays(self, snapshot: Snapshot) -> Iterator[None]:
        delay, store, now_ms = self._tables.delay, self._tables.store, self._tables.clock.now_ms()
        for level, (offset, end) in delay.levels.positions().items():
            snapshot.add(families.DELAY_WAITING, (str(level),), max(0, end - offset))
        if not self._tables.settings.config.timer_enabled or delay.timers.is_closed:
            return
        waiting = delay.timers.waiting_counts().topics
        for topic, one in waiting.items():
            snapshot.add(families.TIMING, (*_STORAGE, topic), one.count)
        queue_offset = delay.timers.queue_offset
        behind = max(0, store.max_offset(TIMER_TOPIC, 0) - queue_offset)
        stored_ms = store.store_ms_of(TIMER_TOPIC, 0, queue_offset) if behind else -1
        snapshot.add(families.TIMER_ENQUEUE_LAG, _STORAGE, behind)
        snapshot.add(families.TIMER_ENQUEUE_LATENCY, _STORAGE, max(0, now_ms - stored_ms) if stored_ms > 0 else 0)
        snapshot.add(families.TIMER_DEQUEUE_LAG, _STORAGE, sum(one.count for one in waiting.values()))
        snapshot.add(families.TIMER_DEQUEUE_LATENCY, _STORAGE, delay.timers.late_ms())
        if now_ms - self._bounds_ms >= _SIZES_LIFE_MS:
            self._bounds_ms = now_ms
            yield from self._count_bounds(now_ms, bool(waiting))
        for bound_s, count in self._bounds.items():
            snapshot.add(families.TIMER_SNAPSHOT, (*_STORAGE, str(bound_s)), count)

    def _count_bounds(self, now_ms: int, any_waits: bool) -> Iterator[None]:
        """Count waiting timer messages by when they are due: one day of slots, 256 per step, at most every 15 s."""
        before_s = 0
        for bound_s in families.TIMER_BOUNDS_S:
            count = 0
            for second in range(before_s, bound_s, 256) if any_waits else ():
                count += self._tables.delay.timers.count_from(now_ms + second * 1000, min(256, bound_s - second))
                yield
            self._bounds[bound_s] = count
            before_s = bound_s

    def _storage(self, snapshot: Snapshot) -> Iterator[None]:
        store, now_ms = self._tables.store, self._tables.clock.now_ms()
        usage = store.disk_usage(store.config.log_dir)
        snapshot.add(families.STORAGE_SIZE, _STORAGE, usage.total_bytes - usage.usable_bytes)
        snapshot.add(families.FLUSH_BEHIND, _STORAGE, max(0, store.log_end - store.flushed_to))
        snapshot.add(families.DISPATCH_BEHIND, _STORAGE, 0)
        if (earliest_ms := store.earliest_store_ms()) > 0:
            snapshot.add(families.RESERVE_TIME, _STORAGE, max(0, now_ms - earliest_ms))
        for path in {store.config.log_dir, store.config.root}:
            one = store.disk_usage(path)
            snapshot.add(families.DISK_FREE, (str(path),), one.usable_bytes)
            snapshot.add(families.DISK_USED, (str(path),), one.used_ratio)
        yield from self._sizes.collect(store.config.log_dir, self._tables.clock.monotonic_ms(), snapshot)
