"""Being known to the NameServers: registering with each of them, again after a change or a loss."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.free_port import REPLICATION_STEP
from rocketq.broker.topics.table import TopicTable
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import DataVersion, KeyValues
from rocketq.protocol.bodies.registration import Registration, compress_parts
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.bodies.topics import TopicConfigTable
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.fastjson import to_bytes
from rocketq.protocol.flags import Perm
from rocketq.protocol.headers import nameserver as headers
from rocketq.protocol.messages import body_crc
from rocketq.protocol.requests import make_request
from rocketq.protocol.versions import OUR_VERSION
from rocketq.remoting import Connection, ConnectionPool
from rocketq.remoting.address import join_addr
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import collect

log = logging.getLogger(__name__)

FIRST_PERIOD_MS: Final = 10_000
RETRY_MS: Final = 2_000
LOSS_PAUSE_MS: Final = 200
HEARD_MS_MAX: Final = 1_000
_GOODBYE_TIMEOUT_MS: Final = 1_000
_ROUTE_TIMEOUT_MS: Final = 3_000
_READ_WRITE: Final = int(Perm.READ | Perm.WRITE)

MasterListener = Callable[[str, str | None], None]
"""Told where a slave's master is, and where it can be followed, whenever a NameServer says so."""


@dataclass(frozen=True, slots=True)
class _TopicsText:
    """The topics as they are sent, for as long as nothing of this changes."""

    version: DataVersion
    perm: int
    compressed: bool
    body: bytes = field(default=b"", compare=False)


class Registrations:
    """What a broker tells NameServers about itself, as it is now."""

    def __init__(self, settings: Settings, topics: TopicTable) -> None:
        self.settings = settings
        self._topics = topics
        self._text: _TopicsText | None = None
        self._encoding = asyncio.Lock()
        self._state_version: int | None = None

    def take_state(self, state_version: int) -> None:
        """The epoch of a master among replicas: NameServers reject an older one."""
        self._state_version = state_version

    async def register(self) -> Command:
        """The topics are encoded once for all NameServers, and again when they have changed."""
        async with self._encoding:
            text = await self._encoded()
        config, compressed, body = self.settings.config, text.compressed, text.body
        header = headers.RegisterBrokerRequest(
            broker_name=config.name,
            broker_addr=self._addr,
            cluster=config.cluster,
            ha_addr=join_addr(config.ha_ip, config.ha_port or config.port + REPLICATION_STEP),
            broker_id=config.broker_id,
            compressed=compressed,
            body_crc=body_crc(body),
        )
        return make_request(header, opaque=0, body=body)

    async def _encoded(self) -> _TopicsText:
        config = self.settings.config
        wanted = _TopicsText(self._version, config.perm, config.compressed_register)
        if self._text == wanted:
            return self._text
        table = replace(self._topics.snapshot(), data_version=wanted.version)
        registration = Registration(topics=await _as_permitted(table, wanted.perm))
        if wanted.compressed:
            parts = await collect(registration.compressed_parts(OUR_VERSION))
            body = await asyncio.to_thread(compress_parts, parts)
        else:
            body = to_bytes("".join(await collect(registration.pieces())))
        self._text = replace(wanted, body=body)
        return self._text

    def compare_version(self) -> Command:
        config = self.settings.config
        question = headers.QueryDataVersionRequest(
            broker_name=config.name, broker_addr=self._addr, cluster=config.cluster, broker_id=config.broker_id
        )
        return make_request(question, opaque=0, body=self._version.encode())

    @property
    def _version(self) -> DataVersion:
        version = self._topics.data_version
        return version if self._state_version is None else replace(version, state_version=self._state_version)

    def goodbye(self) -> Command:
        config = self.settings.config
        header = headers.UnregisterBrokerRequest(
            broker_name=config.name, broker_addr=self._addr, cluster=config.cluster, broker_id=config.broker_id
        )
        return make_request(header, opaque=0)

    @property
    def _addr(self) -> str:
        return join_addr(self.settings.config.ip, self.settings.config.port)


class NameServerLink:
    """One NameServer. Its task sends one registration after the other, so that an older never overtakes a newer, and
    a NameServer that does not answer holds up no other."""

    def __init__(
        self, addr: str, pool: ConnectionPool, registrations: Registrations, on_answer: Callable[[Command], None]
    ) -> None:
        self.addr = addr
        self._pool = pool
        self._registrations = registrations
        self._on_answer = on_answer
        self._wanted = asyncio.Event()
        self._announced = self._told = 0
        self._round_over = asyncio.Event()
        self._reachable = True
        self.first_round = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    def announce(self) -> None:
        """Something changed: register soon."""
        self._announced += 1
        self._wanted.set()

    async def settle(self) -> None:
        """Returns when the NameServer knows every change so far, or does not answer."""
        target = self._announced
        while self._told < target and self._reachable:
            await self._round_over.wait()

    def cancel(self) -> None:
        self._task.cancel()

    async def stop(self) -> None:
        self.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def say_goodbye(self) -> None:
        try:
            await self._pool.invoke(self.addr, self._registrations.goodbye(), _GOODBYE_TIMEOUT_MS)
        except RocketQError as error:
            log.info("a NameServer did not hear our goodbye: %s", error)

    async def _run(self) -> None:
        done = await self._round(needed=True)
        self.first_round.set()
        wait_ms = FIRST_PERIOD_MS if done else RETRY_MS
        while True:
            changed = await self._wait(wait_ms)
            config = self._registrations.settings.config
            done = await self._round(needed=changed or not done or config.force_register)
            wait_ms = config.register_period_ms if done else RETRY_MS

    async def _round(self, *, needed: bool) -> bool:
        """Whether the NameServer knows us now; who waits for that is told."""
        announced = self._announced
        done = await self._tell(needed=needed)
        if done:
            self._told = announced
        over, self._round_over = self._round_over, asyncio.Event()
        over.set()
        return done

    async def _tell(self, *, needed: bool) -> bool:
        """Register, or ask first whether that is needed."""
        try:
            if not needed and not await self._is_outdated():
                return True
            answer = await self._send(await self._registrations.register())
            if answer is not None:
                self._on_answer(answer)
            return answer is not None
        except Exception:  # the link outlives a round that failed
            log.exception("registering with %s failed", self.addr)
            return False

    async def _wait(self, wait_ms: int) -> bool:
        """Whether something changed before the time was over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._wanted.wait()
        changed = self._wanted.is_set()
        self._wanted.clear()
        return changed

    async def _is_outdated(self) -> bool:
        """Whether the NameServer has another version than ours, or does not say."""
        answer = await self._send(self._registrations.compare_version())
        return answer is None or headers.QueryDataVersionResponse.decode(answer.ext_fields).changed

    async def _send(self, command: Command) -> Command | None:
        """The answer, None when there is none or it is a refusal; told about once per outage."""
        reason = ""
        try:
            answer = await self._pool.invoke(
                self.addr, command, self._registrations.settings.config.register_timeout_ms
            )
            if answer.code != ResponseCode.SUCCESS:
                reason = f"{self.addr}: answered {answer.code} {answer.remark}"
        except RocketQError as error:
            reason = str(error)
        if not reason and not self._reachable:
            log.info("NameServer %s knows this broker again", self.addr)
        elif reason and self._reachable:
            log.warning("a NameServer cannot be told of this broker, it is tried again: %s", reason)
        self._reachable = not reason
        return None if reason else answer


class Registrar:
    """All NameServers of the settings."""

    def __init__(self, settings: Settings, topics: TopicTable, clock: Clock) -> None:
        self._registrations = Registrations(settings, topics)
        self._topics = topics
        self._clock = clock
        self.master_listeners: list[MasterListener] = []
        self._pool = ConnectionPool()
        self._pool.add_close_callback(self._lost)
        self._links: dict[str, NameServerLink] = {}
        self._orders: dict[str, KeyValues] = {}
        self._stopping = False
        topics.listeners.append(self.announce)
        settings.listeners.append(self._settings_changed)

    async def start(self) -> None:
        """Returns when all NameServers know this broker; one that does not answer is not waited for long."""
        self._match_settings()
        await _not_for_long(link.first_round.wait() for link in self._links.values())

    async def stop(self) -> None:
        """Say goodbye to every NameServer that hears it."""
        self._stopping = True
        links = list(self._links.values())
        await asyncio.gather(*(link.stop() for link in links))
        await asyncio.gather(*(link.say_goodbye() for link in links))
        await self._pool.close()

    def take_state(self, state_version: int) -> None:
        """From now on registrations carry this epoch."""
        self._registrations.take_state(state_version)
        self.announce()

    def announce(self) -> None:
        """Something changed: register soon."""
        self._match_settings()
        for link in self._links.values():
            link.announce()

    def _settings_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        if before.name_servers != after.name_servers and not self._stopping:
            self.announce()

    async def settle(self) -> None:
        """Returns when all NameServers know every change so far; one that does not answer is not waited for long."""
        await _not_for_long(link.settle() for link in self._links.values())

    async def find_route(self, topic: str) -> TopicRoute | None:
        """From the first NameServer that answers."""
        command = make_request(headers.RouteRequest(topic=topic), opaque=0)
        for addr in self._links:
            try:
                answer = await self._pool.invoke(addr, command, _ROUTE_TIMEOUT_MS)
                return TopicRoute.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
            except RocketQError:
                continue
        return None

    def _match_settings(self) -> None:
        """A link for every NameServer there is now."""
        addrs = self._registrations.settings.config.name_server_addrs
        for addr in addrs:
            if addr not in self._links:
                self._links[addr] = NameServerLink(addr, self._pool, self._registrations, partial(self._heard, addr))
        for addr in [addr for addr in self._links if addr not in addrs]:
            self._links.pop(addr).cancel()
            self._orders.pop(addr, None)

    def _heard(self, addr: str, answer: Command) -> None:
        """A slave is told its master; a master, which of its topics are ordered."""
        if not self._registrations.settings.config.is_slave:
            self._take_orders(addr, answer.body)
            return
        told = headers.RegisterBrokerResponse.decode(answer.ext_fields)
        if told.master_addr:
            for listener in self.master_listeners:
                listener(told.master_addr, told.ha_addr)

    def _take_orders(self, addr: str, body: bytes) -> None:
        """Of all NameServers together: were each heard alone, two that differ would never come to rest."""
        if body:
            self._orders[addr] = KeyValues.decode(body)
        else:
            self._orders.pop(addr, None)
        if self._orders:
            ordered = {topic for orders in self._orders.values() for topic in orders.table}
            self._topics.set_orders(ordered, now_ms=self._clock.now_ms())

    def _lost(self, addr: str, connection: Connection) -> None:
        """A NameServer forgets a broker with its connection, so it must hear of us again."""
        link = self._links.get(addr)
        if link is not None and not self._stopping:
            asyncio.get_running_loop().call_later(LOSS_PAUSE_MS / 1000, link.announce)


async def _not_for_long(waits: Iterable[Coroutine[Any, Any, object]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HEARD_MS_MAX / 1000):
            await asyncio.gather(*waits)


async def _as_permitted(table: TopicConfigTable, perm: int) -> TopicConfigTable:
    """No topic is told with more permission than the whole broker has."""
    if perm & _READ_WRITE == _READ_WRITE:
        return table
    topics = await collect(replace(topic, perm=topic.perm & perm) for topic in table.topics.values())
    return replace(table, topics={topic.topic: topic for topic in topics})
