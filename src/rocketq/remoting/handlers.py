"""Handlers: functions of a typed request and the ports they need.

handlers: Handlers[KvPorts] = Handlers()

@handlers.on(RequestCode.GET_KV_CONFIG)
def get_config(request: Request[GetConfigRequest], ports: KvPorts) -> Reply: ...

handlers.bind(dispatcher, ports)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rocketq.protocol.bodies import Body
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.fastjson import to_bytes
from rocketq.protocol.headers import Header
from rocketq.protocol.requests import decode_header
from rocketq.remoting.connection import Connection
from rocketq.remoting.dispatch import Answer, EncodedReply, Handler, OrderedAnswer, Registry
from rocketq.runtime.slices import UnwantedError, collect

H = TypeVar("H")
_Ports = TypeVar("_Ports")


@dataclass(slots=True)
class Request(Generic[H]):
    """A request with its decoded header; `header` is None for codes without one."""

    header: H
    command: Command
    connection: Connection

    @property
    def body(self) -> bytes:
        return self.command.body

    @property
    def version(self) -> int:
        return self.command.version


@dataclass(slots=True)
class Reply:
    """An answer; opaque and header form are taken from the request. An iterator as body yields pieces of JSON."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = field(default=None, kw_only=True)
    body: Body | bytes | Iterator[str] = field(default=b"", kw_only=True)

    @property
    def is_long(self) -> bool:
        """Whether the body must be encoded in slices because it is large."""
        return not (isinstance(self.body, bytes) or (isinstance(self.body, Body) and self.body.is_short()))

    def to_command(self, request: Command) -> Command:
        match self.body:
            case bytes():
                return self._with_body(request, self.body)
            case Body():
                return self._with_body(request, self.body.encode())
        return self._with_body(request, to_bytes("".join(self.body)))

    async def complete(self, request: Command, connection: Connection) -> Command | None:
        """As `to_command`, with a long body encoded in slices; None when the connection is closed in the meantime."""
        if isinstance(self.body, bytes) or not self.is_long:
            return self.to_command(request)
        pieces = self.body.pieces() if isinstance(self.body, Body) else self.body
        try:
            text = "".join(await collect(pieces, lambda: not connection.is_closed))
        except UnwantedError:
            return None
        return self._with_body(request, to_bytes(text))

    def _with_body(self, request: Command, body: bytes) -> Command:
        ext_fields = self.header.encode() if self.header is not None else None
        return request.answer(self.code, remark=self.remark, ext_fields=ext_fields, body=body)


@dataclass(frozen=True, slots=True)
class SlicedAnswer:
    """A PendingAnswer whose request is executed; only its body remains to be encoded, in slices."""

    reply: Reply
    request: Command
    connection: Connection

    def __await__(self) -> Generator[Any, None, Command | None]:
        return self.reply.complete(self.request, self.connection).__await__()

    def close(self) -> None:
        """Nothing to cancel: encoding starts when it is awaited."""


TypedAnswer = Reply | EncodedReply | None | Coroutine[Any, Any, Reply | None] | OrderedAnswer
TypedHandler = Callable[[Request[Any], _Ports], TypedAnswer]


class Handlers(Generic[_Ports]):
    """The handlers of one family of request codes, bound to their ports later."""

    def __init__(self) -> None:
        self._by_code: dict[RequestCode, TypedHandler[_Ports]] = {}

    def on(self, *codes: RequestCode) -> Callable[[TypedHandler[_Ports]], TypedHandler[_Ports]]:
        """Register the decorated function for these codes."""

        def add(handler: TypedHandler[_Ports]) -> TypedHandler[_Ports]:
            for code in codes:
                assert self._by_code.setdefault(code, handler) is handler, f"two handlers claim {code!r}"
            return handler

        return add

    def bind(self, registry: Registry, ports: _Ports) -> None:
        for code, handler in self._by_code.items():
            registry.register(code, _untyped(handler, ports))


def _untyped(handler: TypedHandler[_Ports], ports: _Ports) -> Handler:
    def handle(command: Command, connection: Connection) -> Answer:
        answer = handler(Request(decode_header(command), command, connection), ports)
        if not isinstance(answer, Reply):
            return answer
        return SlicedAnswer(answer, command, connection) if answer.is_long else answer.to_command(command)

    return handle
