"""Being known to the NameServers: registering with each of them, in order, again after a change or a loss."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from rocketq.broker.settings import Settings
from rocketq.broker.topic_table import TopicTable
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.bodies.registration import Registration
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.bodies.topics import TopicConfigTable
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Perm
from rocketq.protocol.headers import nameserver as headers
from rocketq.protocol.messages import body_crc
from rocketq.protocol.requests import make_request
from rocketq.protocol.versions import OUR_VERSION
from rocketq.remoting import Connection, ConnectionPool
from rocketq.remoting.address import join_addr

log = logging.getLogger(__name__)

FIRST_PERIOD_MS: Final = 10_000
RETRY_MS: Final = 2_000
_ROUTE_TIMEOUT_MS: Final = 3_000
_READ_WRITE: Final = int(Perm.READ | Perm.WRITE)


class Registrar:
    """One task sends all registrations, one round after the other, so that an older never overtakes a newer."""

    def __init__(self, settings: Settings, topics: TopicTable, *, on_orders: Callable[[KeyValues], None]) -> None:
        self._settings = settings
        self._topics = topics
        self._on_orders = on_orders
        self._pool = ConnectionPool()
        self._pool.add_close_callback(self._lost)
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self._unreachable: set[str] = set()

    async def start(self) -> None:
        """The first round, then a task for all that follow."""
        failed = await self.register()
        self._task = asyncio.get_running_loop().create_task(self._run(bool(failed)))

    async def stop(self) -> None:
        """Say goodbye to every NameServer that hears it."""
        self._stopping = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        addrs = self._settings.config.name_server_addrs
        await asyncio.gather(*(self._unregister(addr) for addr in addrs), return_exceptions=True)
        await self._pool.close()

    def announce(self) -> None:
        """Something changed: register soon."""
        self._wanted.set()

    async def register(self) -> tuple[str, ...]:
        """One round over all NameServers; those that did not take it."""
        addrs, command = self._settings.config.name_server_addrs, self._command()
        answers = await asyncio.gather(*(self._send(addr, command) for addr in addrs))
        failed = tuple(addr for addr, answer in zip(addrs, answers, strict=True) if answer is None)
        orders = next((answer.body for answer in answers if answer is not None and answer.body), b"")
        if orders:
            self._on_orders(KeyValues.decode(orders))
        return failed

    async def find_route(self, topic: str) -> TopicRoute | None:
        """From the first NameServer that answers."""
        command = make_request(headers.RouteRequest(topic=topic), opaque=0)
        for addr in self._settings.config.name_server_addrs:
            try:
                answer = await self._pool.invoke(addr, command, _ROUTE_TIMEOUT_MS)
                return TopicRoute.decode(answer.body) if answer.code == ResponseCode.SUCCESS else None
            except RocketQError:
                continue
        return None

    async def _run(self, failed: bool) -> None:
        wait_ms = RETRY_MS if failed else FIRST_PERIOD_MS
        while True:
            changed = await self._wait(wait_ms)
            config = self._settings.config
            try:
                needed = changed or failed or config.force_register or await self._is_outdated()
                failed = bool(await self.register()) if needed else False
            except Exception:  # the loop outlives a round that failed
                log.exception("a registration failed")
                failed = True
            wait_ms = RETRY_MS if failed else config.register_period_ms

    async def _wait(self, wait_ms: int) -> bool:
        """Whether something changed before the time was over."""
        try:
            async with asyncio.timeout(wait_ms / 1000):
                await self._wanted.wait()
        except TimeoutError:
            return False
        self._wanted.clear()
        return True

    async def _is_outdated(self) -> bool:
        """Whether a NameServer has another version than ours, or does not say."""
        config = self._settings.config
        question = headers.QueryDataVersionRequest(
            broker_name=config.name, broker_addr=self._addr, cluster=config.cluster, broker_id=config.broker_id
        )
        command = make_request(question, opaque=0, body=self._topics.data_version.encode())
        answers = await asyncio.gather(*(self._send(addr, command) for addr in config.name_server_addrs))
        return any(answer is None or _says_changed(answer) for answer in answers)

    async def _send(self, addr: str, command: Command) -> Command | None:
        """The answer of a NameServer, None when it has none or refuses; told about once per outage."""
        try:
            answer = await self._pool.invoke(addr, command, self._settings.config.register_timeout_ms)
        except RocketQError as error:
            self._failed(addr, str(error))
            return None
        if answer.code != ResponseCode.SUCCESS:
            self._failed(addr, f"{addr}: answered {answer.code} {answer.remark}")
            return None
        if addr in self._unreachable:
            self._unreachable.discard(addr)
            log.info("NameServer %s knows this broker again", addr)
        return answer

    def _failed(self, addr: str, reason: str) -> None:
        if addr not in self._unreachable:
            self._unreachable.add(addr)
            log.warning("a NameServer cannot be told of this broker, it is tried again: %s", reason)

    def _lost(self, addr: str, connection: Connection) -> None:
        """A NameServer forgets a broker with its connection, so it must hear of us again."""
        if not self._stopping:
            self.announce()

    @property
    def _addr(self) -> str:
        return join_addr(self._settings.config.ip, self._settings.config.port)

    def _command(self) -> Command:
        config = self._settings.config
        registration = Registration(topics=_as_permitted(self._topics.snapshot(), config.perm))
        compressed = config.compressed_register
        body = registration.encode_compressed(OUR_VERSION) if compressed else registration.encode()
        header = headers.RegisterBrokerRequest(
            broker_name=config.name,
            broker_addr=self._addr,
            cluster=config.cluster,
            ha_addr=join_addr(config.ip, config.port + 1),
            broker_id=config.broker_id,
            compressed=compressed,
            body_crc=body_crc(body),
        )
        return make_request(header, opaque=0, body=body)

    async def _unregister(self, addr: str) -> None:
        config = self._settings.config
        goodbye = headers.UnregisterBrokerRequest(
            broker_name=config.name, broker_addr=self._addr, cluster=config.cluster, broker_id=config.broker_id
        )
        try:
            await self._pool.invoke(addr, make_request(goodbye, opaque=0), 1_000)
        except RocketQError as error:
            log.info("a NameServer did not hear our goodbye: %s", error)


def _as_permitted(table: TopicConfigTable, perm: int) -> TopicConfigTable:
    """No topic is told with more permission than the whole broker has."""
    if perm & _READ_WRITE == _READ_WRITE:
        return table
    topics = {name: replace(topic, perm=topic.perm & perm) for name, topic in table.topics.items()}
    return replace(table, topics=topics)


def _says_changed(answer: Command) -> bool:
    return headers.QueryDataVersionResponse.decode(answer.ext_fields).changed is not False
