"""A session: NameServers, connections, routes and the client id that producers, consumers and admins share."""

from __future__ import annotations

import os
import re
import socket
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Protocol, Self, runtime_checkable

from rocketq.client.core.config import convert_spans
from rocketq.client.core.messages import UniqueIds
from rocketq.client.core.namespaces import Namespace, namespace_in
from rocketq.client.errors import ClientClosedError, failure_to
from rocketq.client.fan_out import on_each
from rocketq.client.members import Members, handlers
from rocketq.client.name_servers import NameServers, address_list, parse_name_servers
from rocketq.client.routes import RouteCache
from rocketq.errors import ConfigError, RequestTimeoutError
from rocketq.protocol.acl import Credentials
from rocketq.protocol.bodies.routes import ClusterTable, TopicRoute
from rocketq.protocol.codes import RequestCode, ResponseCode, request_text
from rocketq.protocol.command import Command
from rocketq.protocol.headers.nameserver import RouteRequest
from rocketq.protocol.headers.wire import Header
from rocketq.protocol.requests import make_request
from rocketq.remoting import ClientTls, Connection, ConnectionPool, Dispatcher, Hook
from rocketq.remoting.address_server import AddressServer
from rocketq.remoting.signing import sign_now
from rocketq.runtime.clock import Clock, SystemClock


@runtime_checkable
class ReportsHealth(Protocol):
    """A member with a health report."""

    def health(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionHealth:
    """`brokers` of the routes in use by address, True if a connection is open; unused brokers have none.

    `routes` are the ages of cached routes by topic. `members` are the reports of producers and consumers.
    """

    client_id: str
    name_servers: Mapping[str, bool]
    brokers: Mapping[str, bool]
    routes: Mapping[str, int]
    members: tuple[Mapping[str, Any], ...]
    closed: bool


_UNIT_NAME: Final = re.compile(r"[\w.-]+", re.ASCII)
_DONE = (ResponseCode.SUCCESS,)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    control_timeout_ms: int = 3_000
    """For every request except sends and pulls."""
    route_life_ms: int = 30_000
    """How long a cached route is valid; routes of members are refreshed at this interval."""
    heartbeat_interval_ms: int = 30_000
    instance_name: str | None = None
    """Distinguishes clients of one host; must be unique there. None: process id and a random number."""
    unit_name: str | None = None
    """Appended to the client id: `<ip>@<instance>@<unit>`. An address server named by the environment gets it too."""
    unit_mode: bool = False
    """Tell brokers in sends and heartbeats that this client belongs to a unit: they mark topics they create for it."""
    namespace: str | None = None
    """Prefix of every topic and group in requests; removed from returned names."""
    tls: ClientTls | None = None
    credentials: Credentials | None = None
    address_server: AddressServer | None = None
    """Fetches NameServer addresses by HTTP where no addresses are given. None: the domain in the environment variable
    `rocketmq.namesrv.domain` or `ROCKETMQ_NAMESRV_DOMAIN`, if set."""
    addr_map: Mapping[str, str] = field(default_factory=dict)
    """Addresses to connect to in place of those that brokers advertise, `advertised -> reachable`."""

    def __post_init__(self) -> None:
        convert_spans(self)
        for name in ("control_timeout_ms", "route_life_ms", "heartbeat_interval_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is at least 1")
        if self.unit_name is not None and _UNIT_NAME.fullmatch(self.unit_name) is None:
            raise ConfigError(f"unit_name has letters, digits, `_`, `-` and `.`, got {self.unit_name!r}")


class Session:
    """Belongs to the event loop it is first used on; close it there, or use it in an `async with`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        config: SessionConfig | None = None,
        hooks: Sequence[Hook] = (),
        clock: Clock | None = None,
        several_producers: bool = False,
    ) -> None:
        """With `several_producers` it may have more than one producer of a group."""
        self.config = config or SessionConfig()
        self.clock = clock or SystemClock()
        self.client_id = _client_id(self.config.instance_name, self.config.unit_name)
        """The client id for brokers: at most one producer and one consumer of each group."""
        self.dispatcher = Dispatcher()
        self.namespace = Namespace(self.config.namespace or _implied_namespace(name_servers))
        addrs = address_list(name_servers, self.config.address_server, self.config.unit_name) or parse_name_servers(
            name_servers
        )
        self.name_servers = NameServers(addrs, self.exchange)
        self.routes = RouteCache(self._lookup_route, self.clock, life_ms=self.config.route_life_ms)
        self.unique_ids = UniqueIds(_host_bytes(), os.getpid(), int.from_bytes(os.urandom(4), "big"))
        self._pool = ConnectionPool(self.dispatcher, tls=self.config.tls, hooks=hooks)
        self._closed = False
        self._is_plain = self.config.credentials is None and not hooks
        self.members = Members(self, several_producers=several_producers)
        handlers.bind(self.dispatcher, self.members)
        self._pool.add_open_callback(lambda addr, _: self.members.connected(addr))

    async def call(
        self,
        addr: str,
        header: Header | None,
        *,
        code: RequestCode | None = None,
        body: bytes = b"",
        extra: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        accept: Collection[int] = _DONE,
    ) -> Command:
        """The answer of a broker; a code that is not accepted is raised as its BrokerError."""
        command = make_request(header, opaque=0, code=code, body=body, extra=extra)
        return await self.exchange(addr, command, timeout_ms=timeout_ms, accept=accept)

    async def notify(
        self,
        addr: str,
        header: Header | None,
        *,
        code: RequestCode | None = None,
        body: bytes = b"",
        timeout_ms: int | None = None,
    ) -> None:
        """Send a one-way request; returns when it is written to the network."""
        await self.notify_command(
            addr, make_request(header, opaque=0, code=code, body=body, oneway=True), timeout_ms=timeout_ms
        )

    async def notify_command(self, addr: str, command: Command, *, timeout_ms: int | None = None) -> None:
        if self.config.credentials is not None:
            command = sign_now(command, self.config.credentials)
        self._refuse_if_closed()
        addr = self.config.addr_map.get(addr, addr)
        await self._pool.invoke_oneway(addr, command, timeout_ms or self.config.control_timeout_ms)

    async def call_name_server(
        self, header: Header | None = None, *, code: RequestCode | None = None, body: bytes = b""
    ) -> Command:
        """The answer of a NameServer."""
        return await self.name_servers.call(make_request(header, opaque=0, code=code, body=body))

    async def call_all_name_servers(self, header: Header) -> None:
        """Send to every NameServer; PartlyFailedError names those that failed."""
        command = make_request(header, opaque=0)
        await on_each({addr: self.exchange(addr, command) for addr in await self.name_servers.find()})

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ClientClosedError("the session")

    async def exchange(
        self, addr: str, command: Command, *, timeout_ms: int | None = None, accept: Collection[int] = _DONE
    ) -> Command:
        if self.config.credentials is not None:
            command = sign_now(command, self.config.credentials)
        self._refuse_if_closed()
        addr = self.config.addr_map.get(addr, addr)
        limit_ms = timeout_ms or self.config.control_timeout_ms
        try:
            answer = await self._pool.invoke(addr, command, limit_ms)
        except RequestTimeoutError as error:
            what = request_text(command.code, command.ext_fields)
            raise RequestTimeoutError(error.addr, error.code, limit_ms, what) from None
        if answer.code not in accept:
            raise failure_to(command, answer, addr)
        return answer

    async def cluster(self) -> ClusterTable:
        """All registered brokers."""
        return ClusterTable.decode((await self.call_name_server(code=RequestCode.GET_BROKER_CLUSTER_INFO)).body)

    @property
    def is_plain(self) -> bool:
        """Whether frames may be encoded without a Command: no credentials and no hooks."""
        return self._is_plain

    def opened(self, addr: str) -> Connection | None:
        """The open connection to this address, or None."""
        return self._pool.opened(self.config.addr_map.get(addr, addr))

    async def writable(self, addr: str, code: int, timeout_ms: int) -> tuple[Connection, int]:
        """A connection that accepts writes, and the remaining time."""
        self._refuse_if_closed()
        start_ms = self.clock.monotonic_ms()
        connection = await self._pool.ready(self.config.addr_map.get(addr, addr), code, timeout_ms)
        return connection, max(1, timeout_ms - (self.clock.monotonic_ms() - start_ms))

    def is_connected(self, addr: str) -> bool:
        return self.opened(addr) is not None

    def health(self) -> SessionHealth:
        """Connections, ages of routes, and reports of members."""
        members = self.members.all()
        addrs = {addr for broker in self.routes.brokers() for addr in broker.addrs.values()}
        return SessionHealth(
            client_id=self.client_id,
            name_servers={addr: self.is_connected(addr) for addr in self.name_servers.addrs},
            brokers={addr: self.is_connected(addr) for addr in sorted(addrs)},
            routes=self.routes.ages_ms(),
            members=tuple(member.health() for member in members if isinstance(member, ReportsHealth)),
            closed=self._closed,
        )

    async def close(self) -> None:
        self._closed = True
        await self.members.close()
        await self.routes.close()
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _lookup_route(self, topic: str) -> TopicRoute:
        return TopicRoute.decode((await self.call_name_server(RouteRequest(topic=topic, strict_json=True))).body)


def _implied_namespace(name_servers: str | Sequence[str] | None) -> str | None:
    given = name_servers.split(";") if isinstance(name_servers, str) else name_servers or ()
    return next((found for found in map(namespace_in, given) if found is not None), None)


def _client_id(instance_name: str | None, unit_name: str | None) -> str:
    instance = instance_name or f"{os.getpid()}#{int.from_bytes(os.urandom(6))}"
    return "@".join(part for part in (_local_ip(), instance, unit_name) if part is not None)


def _local_ip() -> str:
    """The local address of the default route; sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _host_bytes() -> bytes:
    """Four bytes that identify the host, from its name; needs no address lookup."""
    return zlib.crc32(socket.gethostname().encode()).to_bytes(4, "big")
