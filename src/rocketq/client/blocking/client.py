"""Routes and requests over blocking connections, with one connection per address."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Final, Self

from rocketq.client.blocking.link import Link
from rocketq.client.core.routes import MASTER_ID, broker_addr
from rocketq.client.errors import NoQueueError
from rocketq.client.name_server_addrs import parse_name_servers
from rocketq.errors import ConnectionClosedError, RemotingError, UnreachableError
from rocketq.protocol.acl import Credentials, sign
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import failure_of
from rocketq.protocol.headers.nameserver import RouteRequest
from rocketq.protocol.headers.wire import Header
from rocketq.protocol.requests import make_request
from rocketq.remoting.tls import ClientTls

CONTROL_TIMEOUT_MS: Final = 3_000
_DONE: Final = (ResponseCode.SUCCESS,)


class BlockingClient:
    """Belongs to one thread."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        credentials: Credentials | None = None,
        tls: ClientTls | None = None,
    ) -> None:
        self._name_servers = list(parse_name_servers(name_servers))
        self._credentials = credentials
        self._tls = tls.context() if tls is not None else None
        self._links: dict[str, Link] = {}
        self._routes: dict[str, TopicRoute] = {}
        self._known: set[str] = set()

    def link(self, addr: str) -> Link:
        link = self._links.get(addr)
        if link is not None and link.is_stale:
            self.drop(addr)
            link = None
        if link is None:
            link = self._links[addr] = Link(addr, tls=self._tls)
        return link

    def drop(self, addr: str) -> None:
        """Forget a connection that failed; the next request makes a new one."""
        if (link := self._links.pop(addr, None)) is not None:
            link.close()

    def signed(self, command: Command) -> Command:
        return command if self._credentials is None else sign(command, self._credentials)

    def call(
        self,
        addr: str,
        header: Header | None,
        *,
        code: RequestCode | None = None,
        body: bytes = b"",
        timeout_ms: int = CONTROL_TIMEOUT_MS,
        accept: Collection[int] = _DONE,
    ) -> Command:
        """The answer; one whose code is not accepted is raised as the error it stands for."""
        command = self.signed(make_request(header, opaque=0, code=code, body=body))
        try:
            answer = self.link(addr).exchange(command, timeout_ms)
        except RemotingError:
            self.drop(addr)
            raise
        if answer.code not in accept:
            raise failure_of(answer, peer=addr)
        return answer

    def route(self, topic: str, *, fresh: bool = False) -> TopicRoute:
        if fresh or topic not in self._routes:
            self._routes[topic] = TopicRoute.decode(self.ask(RouteRequest(topic=topic, strict_json=True)).body)
            self._known.add(topic)
        return self._routes[topic]

    def knew(self, topic: str) -> bool:
        """Whether it was there once: if it is not now, its brokers are away and may come back."""
        return topic in self._known

    def forget_routes(self) -> None:
        """Ask for them again when they are next needed."""
        self._routes.clear()

    def broker(self, topic: str, broker_name: str, *, broker_id: int = MASTER_ID, fresh: bool = False) -> str:
        """Where a broker of the topic is, or another of its name; NoQueueError when none is there at present."""
        addr = broker_addr(self.route(topic, fresh=fresh), broker_name, broker_id)
        if addr is None:
            raise NoQueueError(topic, f"broker {broker_name} is not there at present")
        return addr

    def master(self, topic: str, broker_name: str) -> str | None:
        """Where the one that is written to is; what is not there is not anywhere."""
        brokers = (each for each in self.route(topic).brokers if each.broker_name == broker_name)
        return next((each.addrs.get(MASTER_ID) for each in brokers), None)

    def close(self) -> None:
        for addr in list(self._links):
            self.drop(addr)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def ask(self, header: Header | None = None, *, code: RequestCode | None = None) -> Command:
        """The answer of the first NameServer that gives one; UnreachableError when none does."""
        failures = []
        for addr in list(self._name_servers):
            try:
                return self._asked_of(addr, header, code)
            except RemotingError as error:
                failures.append(error)
                self._name_servers.append(self._name_servers.pop(0))  # the next one is asked first from now on
        reasons = "; ".join(map(str, failures))
        raise UnreachableError(";".join(self._name_servers), f"no NameServer answered: {reasons}")

    def _asked_of(self, addr: str, header: Header | None, code: RequestCode | None) -> Command:
        """A connection from before may have been closed meanwhile, which says nothing about the NameServer."""
        was_there = addr in self._links
        try:
            return self.call(addr, header, code=code)
        except ConnectionClosedError:
            if not was_there:
                raise
        return self.call(addr, header, code=code)
