"""Broker side of classic replication: a master with slaves, or a slave of a master."""

from __future__ import annotations

import asyncio
import logging
from typing import Final, Protocol

from rocketq.broker.admin.registration import Registrar
from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerRole
from rocketq.broker.free_port import REPLICATION_STEP
from rocketq.broker.ha.master_tables import CopyPorts, MasterTables
from rocketq.protocol.bodies.stats import MasterLink, ReplicaLink, ReplicationState
from rocketq.replication.classic_client import FollowRules, MasterFollower
from rocketq.replication.classic_listener import ListenerRules, ReplicaListener
from rocketq.replication.classic_slave import StreamTimes
from rocketq.runtime.clock import Clock
from rocketq.store import StoreReplica
from rocketq.store.timer_files import TimerPoint

log = logging.getLogger(__name__)

SEARCH_MS: Final = 1_000
"""Interval of NameServer requests while the master is unknown or unreachable."""
NEAR_BYTES: Final = 256 << 10


class Replication(Protocol):
    """Background work of a broker's role."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def state(self) -> ReplicationState: ...


class RoleOwner(Protocol):
    """The broker, which starts and stops the services that only a master runs."""

    async def begin_mastership(self, timers: tuple[TimerPoint, int] | None) -> None: ...

    def end_mastership(self) -> None: ...

    def restart_empty(self) -> None: ...

    async def save_tables(self) -> None: ...


def stream_times(settings: Settings) -> StreamTimes:
    return StreamTimes(settings.config.ha_heartbeat_ms, settings.config.ha_silence_ms_max)


class MasterReplication:
    """Serves slaves; with SYNC_MASTER, answers wait for one of them."""

    def __init__(self, settings: Settings, store: StoreReplica, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._listener = ReplicaListener(store, clock, self._rules)

    def _rules(self) -> ListenerRules:
        config = self._settings.config
        return ListenerRules(
            times=stream_times(self._settings),
            batch_bytes=config.ha_batch_bytes,
            behind_bytes_max=config.ha_behind_bytes_max,
            timeout_ms=config.slave_timeout_ms,
            from_last_file=config.ha_from_last_file,
        )

    async def start(self) -> None:
        config = self._settings.config
        await self._listener.start(config.host, config.ha_port or config.port + REPLICATION_STEP)
        if config.role is BrokerRole.SYNC_MASTER:
            self._store.wait_for_replicas(self._listener.gate)

    async def stop(self) -> None:
        await self._listener.stop()

    def state(self) -> ReplicationState:
        end = self._store.log_end
        links = tuple(
            ReplicaLink(
                addr=link.addr,
                confirmed_to=link.state.acked_to,
                behind_bytes=end - link.state.acked_to,
                in_sync=end - link.state.acked_to < NEAR_BYTES,
                sent_to=link.state.sent_to,
            )
            for link in sorted(self._listener.links, key=lambda link: link.addr)
            if link.state.acked_to >= 0
        )
        return ReplicationState(log_end=end, in_sync_count=sum(link.in_sync for link in links), replicas=links)


class SlaveReplication:
    """Follows the master's log and copies its tables; settings or NameServers provide its address."""

    def __init__(
        self, settings: Settings, store: StoreReplica, ports: CopyPorts, registrar: Registrar, clock: Clock
    ) -> None:
        self._settings = settings
        self._store = store
        self._registrar = registrar
        self._clock = clock
        self._tables = MasterTables(ports)
        self._follower = MasterFollower(store, clock, self._ha_addr, self._rules, self._why_not_follow)
        self._master: tuple[str, str | None] | None = None
        self._moved = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failure: str | None = None
        registrar.master_listeners.append(self._heard)

    def _rules(self) -> FollowRules:
        return FollowRules(stream_times(self._settings), self._settings.config.ha_retry_ms)

    def _ha_addr(self) -> str | None:
        """None while it is unknown."""
        return self._settings.config.ha_master_addr or (self._master[1] if self._master is not None else None)

    async def _why_not_follow(self) -> str | None:
        return None if self._master is None else await self._tables.find_divergence(self._master[0])

    async def start(self) -> None:
        self._follower.start()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._follower.stop()
        await self._tables.close()

    def _heard(self, addr: str, ha_addr: str | None) -> None:
        if self._master != (addr, ha_addr):
            log.info("master is %s, replication address %s", addr, self._settings.config.ha_master_addr or ha_addr)
            self._master = (addr, ha_addr)
            self._moved.set()
            self._follower.wake()

    async def _run(self) -> None:
        while True:
            try:
                found = await self._copy_tables()
            except Exception:  # the service continues after a failed round
                log.exception("copying the master's tables failed")
                found = False
            if not found:
                self._registrar.announce()  # the answer contains the master's address
            await self._pause(self._settings.config.slave_table_interval_ms if found else SEARCH_MS)

    async def _copy_tables(self) -> bool:
        if self._master is None:
            return False
        failure = await self._tables.copy(self._master[0])
        if failure is not None and self._failure is None:
            log.warning("copying the master's tables failed, retrying: %s", failure)
        self._failure = failure
        return failure is None

    async def _pause(self, wait_ms: int) -> None:
        self._moved.clear()
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._moved.wait()
        except TimeoutError:
            pass

    def state(self) -> ReplicationState:
        connection, now_ms = self._follower.connection, self._clock.now_ms()
        ago_ms = now_ms - self._clock.monotonic_ms()
        link = MasterLink(
            last_read_ms=ago_ms + connection.state.last_read_ms if connection is not None else 0,
            last_write_ms=ago_ms + connection.state.last_written_ms if connection is not None else 0,
            log_end=self._store.log_end,
            addr=self._ha_addr() or "",
            active=connection is not None,
        )
        return ReplicationState(is_master=False, log_end=self._store.log_end, master=link)
