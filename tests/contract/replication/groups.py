"""Replicas on real stores and real sockets in one process, with a control store in memory."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocketq.model import Host, NewMessage
from rocketq.replication import actions as act
from rocketq.replication.agent import AgentSettings, Role
from rocketq.replication.confirm import SyncRules
from rocketq.replication.control import ControlStore
from rocketq.replication.control_memory import ControlTable, MemoryControl
from rocketq.replication.election import LeaseMode, LeaseTimes
from rocketq.replication.fenced_replica import FencedReplica
from rocketq.replication.replica_files import FencedStore
from rocketq.runtime.clock import SystemClock
from rocketq.store import AppendStatus, FlushType, Store, StoreConfig
from rocketq.testing.etcd import free_ports

HANG_S = 60
SEGMENT_BYTES = 64 << 10
HOST = Host.of("127.0.0.1", 10911)


@dataclass
class Roles:
    told: list[str] = field(default_factory=list)
    table: bytes = b"{}"
    disk_is_full: bool = False

    async def lead(self, epoch: int) -> None:
        self.told.append(f"lead {epoch}")

    async def follow(self, master: act.Follow) -> None:
        self.told.append(f"follow {master.master_id}")

    async def step_down(self, reason: str) -> None:
        self.told.append("step down")

    async def unrelated(self, reason: str) -> None:
        self.told.append("unrelated")

    def tables(self) -> bytes:
        return self.table

    async def replace_tables(self, body: bytes) -> None:
        if self.disk_is_full:
            raise OSError("no space is left")
        self.table = body


class Member:
    """One replica that can be started, killed (nothing is said to anybody) and started again."""

    def __init__(self, group: LocalGroup, number: int, root: Path, port: int) -> None:
        self.group = group
        self.number = number
        self.root = root
        self.port = port
        self.roles = Roles()
        self.running: FencedReplica | None = None

    @property
    def replica(self) -> FencedReplica:
        assert self.running is not None
        return self.running

    @property
    def store(self) -> Store:
        return self.replica.replica.store

    @property
    def leads(self) -> bool:
        return self.running is not None and self.running.agent.role is Role.LEADING

    async def start(self) -> None:
        group, addr = self.group, f"127.0.0.1:{self.port}"
        config = StoreConfig(
            root=self.root,
            segment_bytes=SEGMENT_BYTES,
            flush_type=group.flush_type,
            message_bytes_max=8_192,
            index_slots=100,
            index_units=400,
            store_host=HOST,
        )
        store = await asyncio.to_thread(Store.open, config)
        settings = AgentSettings(
            addr=addr, ha_addr=addr, times=group.times, lease_mode=group.mode, rules=group.rules, poll_ms=1_000
        )
        replica = FencedStore(store, "cluster", "broker-a")
        self.running = FencedReplica(
            replica,
            settings,
            group.control(),
            SystemClock(),
            self.roles,
            secret=group.secrets[self.number],
            tls=group.tls,
        )
        await self.running.start("127.0.0.1", self.port)

    async def stop(self, *, cleanly: bool) -> None:
        if self.running is not None:
            running, self.running = self.running, None
            await running.stop(cleanly=cleanly)
            await asyncio.to_thread(running.replica.store.close)

    def append(self, number: int) -> int:
        """A message; where its record ends."""
        body = f"message {number} ".encode() * (1 + number % 7)
        message = NewMessage(topic="T", queue_id=number % 3, body=body, born_ms=1, born_host=HOST)
        result = self.store.append(message, wait=False)
        assert result.status is AppendStatus.OK, result
        return result.log_offset + result.size

    async def is_answered(self, end: int, timeout_s: float = 10) -> bool:
        """As a broker waits before it answers a send."""
        return await asyncio.to_thread(self.replica.gate.wait, end, int(timeout_s * 1000))


class LocalGroup:
    def __init__(
        self,
        root: Path,
        count: int = 3,
        *,
        flush_type: FlushType = FlushType.ASYNC_FLUSH,
        min_in_sync: int = 2,
        mode: LeaseMode = LeaseMode.AVAILABLE,
        control: Callable[[], ControlStore] | None = None,
        secrets: Sequence[bytes | None] = (),
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    ) -> None:
        """`secrets`: of haSecretFile, one per member; none: the secret of the control store."""
        self.secrets = secrets or [None] * count
        self.tls = tls
        self.flush_type = flush_type
        self.mode = mode
        self.times = LeaseTimes(keep_alive_ms=300, valid_ms=2_000, ttl_ms=4_000)
        self.rules = SyncRules(
            min_in_sync=min_in_sync, sync_flush=flush_type is FlushType.SYNC_FLUSH, behind_ms_max=5_000, gone_ms_max=500
        )
        table = ControlTable()
        self.control = control or (lambda: MemoryControl(SystemClock(), table))
        ports = free_ports(count)
        self.members = [Member(self, number, root / str(number), ports[number]) for number in range(count)]

    async def __aenter__(self) -> LocalGroup:
        for member in self.members:
            await member.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            await member.stop(cleanly=False)

    async def leader(self, in_sync: int | None = None) -> Member:
        """The master, once so many are in sync and it takes messages."""
        wanted = len(self.members) if in_sync is None else in_sync

        def ready() -> bool:
            leaders = [member for member in self.members if member.leads]
            term = leaders[0].replica.agent.term if len(leaders) == 1 else None
            return term is not None and len(term.in_sync) == wanted

        await until(ready, self.describe)
        return next(member for member in self.members if member.leads)

    def others(self, member: Member) -> list[Member]:
        return [each for each in self.members if each is not member]

    async def is_equal(self) -> None:
        """All logs are the same bytes, and everything of them is visible everywhere."""
        stores = [member.store for member in self.members if member.running is not None]
        await until(lambda: len({(store.log_end, store.visible_to) for store in stores}) == 1, self.describe)
        contents = [bytes_of(store) for store in stores]
        assert all(content == contents[0] for content in contents)
        for queue_id in range(3):
            assert len({store.max_offset("T", queue_id) for store in stores}) == 1

    def describe(self) -> str:
        return "; ".join(
            f"{member.number}: {running.agent.role.value} epoch {running.agent.state.epoch} "
            f"log [{running.replica.log_start}, {running.replica.log_end}) visible {running.replica.store.visible_to} "
            f"{running.replica.load_epochs()} {running.agent.term} {running.unrelated or ''}"
            for member in self.members
            if (running := member.running) is not None
        )


def bytes_of(store: Store) -> bytes:
    """The whole log."""
    pieces, at = [], store.log_start
    while at < store.log_end:
        piece = bytes(store.raw_range(at, 1 << 20))
        pieces.append(piece)
        at += len(piece)
    return b"".join(pieces)


async def until(done: Callable[[], object], tell: Callable[[], str] = str, timeout_s: float = 30) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not done():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"not reached: {tell()}") from None
