"""Registration of a broker with its NameServers: periodically, after changes and after lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Generator, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.free_port import REPLICATION_STEP
from rocketq.broker.topics.table import TopicTable
from rocketq.errors import LocalProtocolError, RocketQError
from rocketq.protocol.bodies.queues import DataVersion, KeyValues
from rocketq.protocol.bodies.registration import Registration, compress_parts
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.fastjson import to_bytes
from rocketq.protocol.flags import Perm
from rocketq.protocol.headers import nameserver as headers
from rocketq.protocol.messages import body_crc
from rocketq.protocol.requests import make_request
from rocketq.protocol.versions import OUR_VERSION
from rocketq.remoting import ClientTls, Connection, ConnectionPool
from rocketq.remoting.address import join_addr
from rocketq.remoting.address_server import REFRESH_S, AddressList
from rocketq.runtime.clock import Clock
from rocketq.runtime.slices import collect, finish

log = logging.getLogger(__name__)

FIRST_PERIOD_MS: Final = 10_000
RETRY_MS: Final = 2_000
LOSS_PAUSE_MS: Final = 200
WAIT_MS_MAX: Final = 1_000
_UNREGISTER_TIMEOUT_MS: Final = 1_000
_ROUTE_TIMEOUT_MS: Final = 3_000
PART_BYTES_MAX: Final = 4 << 20
"""Of the topics in one request, before compression; the frame limit is 16 MiB."""
_TOPIC_BYTES: Final = 180  # of a topic without its name and attributes
_READ_WRITE: Final = int(Perm.READ | Perm.WRITE)

MasterListener = Callable[[str, str | None], None]
"""Called with the address and replication address of a slave's master, from each NameServer's answer."""


@dataclass(frozen=True, slots=True)
class _EncodedTopics:
    """The encoded topics, reused while version, permission and compression are unchanged."""

    version: DataVersion
    perm: int
    compressed: bool
    bodies: tuple[bytes, ...] = field(default=(), compare=False)
    """One, or several when the topics exceed PART_BYTES_MAX."""


class RegistrationRequests:
    """Builds the requests that register, compare and unregister a broker."""

    def __init__(self, settings: Settings, topics: TopicTable) -> None:
        self.settings = settings
        self._topics = topics
        self._topics_sent: _EncodedTopics | None = None
        self._encoding = asyncio.Lock()
        self._state_version: int | None = None

    def set_state_version(self, state_version: int) -> None:
        """Set the epoch of a fenced master: NameServers reject registrations with an older one."""
        self._state_version = state_version

    async def register(self) -> list[Command]:
        """The registration, in several requests when one would approach the frame limit.

        Topics are encoded once for all NameServers, and again after a change. NameServers keep topics that a request
        does not list, but take over listed ones only with a changed data version: each request has another one, the
        last one the version of the table.
        """
        async with self._encoding:
            topics = await self._encoded()
        return [self._request(body, compressed=topics.compressed) for body in topics.bodies]

    @property
    def is_split(self) -> bool:
        """Whether the last registration had several requests."""
        return self._topics_sent is not None and len(self._topics_sent.bodies) > 1

    def _request(self, body: bytes, *, compressed: bool) -> Command:
        config = self.settings.config
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

    async def _encoded(self) -> _EncodedTopics:
        config = self.settings.config
        wanted = _EncodedTopics(self._version, config.perm, config.compressed_register)
        if self._topics_sent == wanted:
            return self._topics_sent
        table = await _as_permitted(replace(self._topics.snapshot(), data_version=wanted.version), wanted.perm)
        tables = await finish(_split(table))
        bodies = [await _encode(Registration(topics=part), compressed=wanted.compressed) for part in tables]
        self._topics_sent = replace(wanted, bodies=tuple(bodies))
        return self._topics_sent

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

    def unregistration(self) -> Command:
        config = self.settings.config
        header = headers.UnregisterBrokerRequest(
            broker_name=config.name, broker_addr=self._addr, cluster=config.cluster, broker_id=config.broker_id
        )
        return make_request(header, opaque=0)

    @property
    def _addr(self) -> str:
        return join_addr(self.settings.config.ip, self.settings.config.port)


class NameServerRegistration:
    """The registration with one NameServer. Its task sends one request at a time, so that an older registration never
    overtakes a newer one and an unreachable NameServer delays no other."""

    def __init__(
        self, addr: str, pool: ConnectionPool, requests: RegistrationRequests, on_answer: Callable[[Command], None]
    ) -> None:
        self.addr = addr
        self._pool = pool
        self._requests = requests
        self._on_answer = on_answer
        self._wanted = asyncio.Event()
        self._changes = self._registered_changes = 0
        self._round_over = asyncio.Event()
        self._reachable = True
        self.failure: str | None = None
        """Why the last request failed."""
        self._answered = False
        self.first_round = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def is_registered(self) -> bool:
        """Whether the NameServer answered the last attempt."""
        return self._answered

    def announce(self) -> None:
        """Register soon, because something changed."""
        self._changes += 1
        self._wanted.set()

    async def wait_registered(self) -> None:
        """Return when all changes so far are registered, or the NameServer is unreachable."""
        target = self._changes
        while self._registered_changes < target and self._reachable:
            await self._round_over.wait()

    def cancel(self) -> None:
        self._task.cancel()

    async def stop(self) -> None:
        self.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def unregister(self) -> None:
        try:
            await self._pool.invoke(self.addr, self._requests.unregistration(), _UNREGISTER_TIMEOUT_MS)
        except RocketQError as error:
            log.info("unregistering failed: %s", error)

    async def _run(self) -> None:
        done = await self._round(needed=True)
        self.first_round.set()
        wait_ms = FIRST_PERIOD_MS if done else RETRY_MS
        while True:
            changed = await self._wait(wait_ms)
            config = self._requests.settings.config
            forced = config.force_register and not self._requests.is_split  # comparing versions renews it for less
            done = await self._round(needed=changed or not done or forced)
            wait_ms = config.register_period_ms if done else RETRY_MS

    async def _round(self, *, needed: bool) -> bool:
        """One attempt to register; returns whether the NameServer has the current state. Wakes `wait_registered`."""
        changes = self._changes
        done = self._answered = await self._register(needed=needed)
        if done:
            self._registered_changes = changes
        over, self._round_over = self._round_over, asyncio.Event()
        over.set()
        return done

    async def _register(self, *, needed: bool) -> bool:
        """Register; unless `needed`, compare versions first."""
        try:
            if not needed and not await self._is_outdated():
                return True
            answer: Command | None = None
            for request in await self._requests.register():
                answer = await self._send(request)
                if answer is None:
                    return False
            if answer is not None:
                self._on_answer(answer)
            return answer is not None
        except Exception:  # the task must survive a failed round
            log.exception("registering with %s failed", self.addr)
            return False

    async def _wait(self, wait_ms: int) -> bool:
        """Wait; returns whether a change interrupted the wait."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                await self._wanted.wait()
        changed = self._wanted.is_set()
        self._wanted.clear()
        return changed

    async def _is_outdated(self) -> bool:
        """Whether the NameServer has another data version, or does not answer."""
        answer = await self._send(self._requests.compare_version())
        return answer is None or headers.QueryDataVersionResponse.decode(answer.ext_fields).changed

    async def _send(self, command: Command) -> Command | None:
        """The answer; None on failure, which is logged once per outage."""
        reason, is_rejected = "", False
        try:
            answer = await self._pool.invoke(self.addr, command, self._requests.settings.config.register_timeout_ms)
            if answer.code != ResponseCode.SUCCESS:
                reason, is_rejected = f"{self.addr} answered code {answer.code}: {answer.remark}", True
        except RocketQError as error:
            reason, is_rejected = str(error), isinstance(error, LocalProtocolError)
        if not reason and not self._reachable:
            log.info("registered with NameServer %s again", self.addr)
        elif is_rejected and self._reachable:
            log.error("registration is impossible, clients cannot find this broker through %s: %s", self.addr, reason)
        elif reason and self._reachable:
            log.warning("registration with a NameServer failed, retrying every %d ms: %s", RETRY_MS, reason)
        self._reachable, self.failure = not reason, reason or None
        return None if reason else answer


class Registrar:
    """Registers the broker with all configured NameServers."""

    def __init__(self, settings: Settings, topics: TopicTable, clock: Clock, *, tls: ClientTls | None = None) -> None:
        self._requests = RegistrationRequests(settings, topics)
        self._topics = topics
        self._clock = clock
        self.master_listeners: list[MasterListener] = []
        self._pool = ConnectionPool(credentials=settings.config.access.inner_credentials, tls=tls)
        self._pool.add_close_callback(self._lost)
        self._registrations: dict[str, NameServerRegistration] = {}
        self._orders: dict[str, KeyValues] = {}
        self._stopping = False
        server = settings.config.address_server
        self._address_list = None if server is None else AddressList(server)
        self._refreshing: asyncio.Task[None] | None = None
        topics.listeners.append(self.announce)
        settings.listeners.append(self._settings_changed)

    async def start(self) -> None:
        """Return when all NameServers have the registration, or after WAIT_MS_MAX."""
        if self._address_list is not None:
            await self._address_list.refresh()
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh_addresses(self._address_list))
        self._match_settings()
        await _wait_briefly(registration.first_round.wait() for registration in self._registrations.values())

    @property
    def registered(self) -> tuple[int, int]:
        """NameServers that answered the last registration, and all that are configured."""
        found = [one.is_registered for one in self._registrations.values()]
        return sum(found), len(found)

    async def stop(self) -> None:
        """Unregister from all reachable NameServers."""
        self._stopping = True
        if self._refreshing is not None:
            self._refreshing.cancel()
        registrations = list(self._registrations.values())
        await asyncio.gather(*(registration.stop() for registration in registrations))
        await asyncio.gather(*(registration.unregister() for registration in registrations))
        await self._pool.close()

    def set_state_version(self, state_version: int) -> None:
        """Send this epoch with all further registrations."""
        self._requests.set_state_version(state_version)
        self.announce()

    def announce(self) -> None:
        """Register soon, because something changed."""
        self._match_settings()
        for registration in self._registrations.values():
            registration.announce()

    async def _refresh_addresses(self, addresses: AddressList) -> None:
        """Apache's brokers fetch the list after 10 s for the second time, then every 2 minutes."""
        wait_s = FIRST_PERIOD_MS / 1000
        while True:
            await asyncio.sleep(wait_s)
            if await addresses.refresh():
                self.announce()
            wait_s = REFRESH_S

    def _settings_changed(self, before: BrokerConfig, after: BrokerConfig) -> None:
        if before.name_servers != after.name_servers and not self._stopping:
            self.announce()

    async def wait_registered(self) -> None:
        """Return when all NameServers have all changes so far, or after WAIT_MS_MAX."""
        await _wait_briefly(registration.wait_registered() for registration in self._registrations.values())

    def check_registered(self) -> str | None:
        """A readiness check: why no NameServer has the registration; None when one has, or none is configured."""
        registered, configured = self.registered
        if registered or not configured:
            return None
        failures = [one.failure for one in self._registrations.values() if one.failure is not None]
        return "; ".join([f"registered with 0 of {configured} NameServers", *failures])

    async def find_route(self, topic: str) -> TopicRoute | None:
        """The route of a topic from the first NameServer that answers."""
        command = make_request(headers.RouteRequest(topic=topic), opaque=0)
        for addr in self._registrations:
            try:
                answer = await self._pool.invoke(addr, command, _ROUTE_TIMEOUT_MS)
                return TopicRoute.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
            except RocketQError:
                continue
        return None

    def _match_settings(self) -> None:
        """Start and stop registrations so that they match the configured NameServers."""
        addrs = self._requests.settings.config.name_server_addrs
        if not addrs and self._address_list is not None:
            addrs = self._address_list.current
        for addr in addrs:
            if addr not in self._registrations:
                self._registrations[addr] = NameServerRegistration(
                    addr, self._pool, self._requests, partial(self._on_answer, addr)
                )
        for addr in [addr for addr in self._registrations if addr not in addrs]:
            self._registrations.pop(addr).cancel()
            self._orders.pop(addr, None)

    def _on_answer(self, addr: str, answer: Command) -> None:
        """Read the master's address on a slave, the ordered topics on a master."""
        if not self._requests.settings.config.is_slave:
            self._set_orders(addr, answer.body)
            return
        response = headers.RegisterBrokerResponse.decode(answer.ext_fields)
        if response.master_addr:
            for listener in self.master_listeners:
                listener(response.master_addr, response.ha_addr)

    def _set_orders(self, addr: str, body: bytes) -> None:
        """Combine the ordered topics of all NameServers: if they differ, each answer would undo the previous one."""
        if body:
            self._orders[addr] = KeyValues.decode(body)
        else:
            self._orders.pop(addr, None)
        if self._orders:
            ordered = {topic for orders in self._orders.values() for topic in orders.table}
            self._topics.set_orders(ordered, now_ms=self._clock.now_ms())

    def _lost(self, addr: str, connection: Connection) -> None:
        """Register again: a NameServer removes a broker when its connection closes."""
        registration = self._registrations.get(addr)
        if registration is not None and not self._stopping:
            asyncio.get_running_loop().call_later(LOSS_PAUSE_MS / 1000, registration.announce)


async def _wait_briefly(waits: Iterable[Coroutine[Any, Any, object]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(WAIT_MS_MAX / 1000):
            await asyncio.gather(*waits)


async def _encode(registration: Registration, *, compressed: bool) -> bytes:
    if not compressed:
        return to_bytes("".join(await collect(registration.pieces())))
    parts = await collect(registration.compressed_parts(OUR_VERSION))
    return await asyncio.to_thread(compress_parts, parts)


def _split(table: TopicConfigTable) -> Generator[None, None, list[TopicConfigTable]]:
    """Tables that are encoded in about PART_BYTES_MAX each, with different versions."""
    parts: list[dict[str, TopicConfig]] = [{}]
    left = PART_BYTES_MAX
    for name, topic in table.topics.items():
        size = _TOPIC_BYTES + 2 * len(name) + len(str(topic.attributes or ""))
        if left < size and parts[-1]:
            parts.append({})
            left = PART_BYTES_MAX
        parts[-1][name] = topic
        left -= size
        yield
    version, last = table.data_version, len(parts) - 1
    return [
        TopicConfigTable(data_version=replace(version, timestamp_ms=version.timestamp_ms - last + number), topics=part)
        for number, part in enumerate(parts)
    ]


async def _as_permitted(table: TopicConfigTable, perm: int) -> TopicConfigTable:
    """Limit the permission of each topic to that of the broker."""
    if perm & _READ_WRITE == _READ_WRITE:
        return table
    topics = await collect(replace(topic, perm=topic.perm & perm) for topic in table.topics.values())
    return replace(table, topics={topic.topic: topic for topic in topics})
