"""Handlers as functions of a typed request and the few ports they need.

handlers: Handlers[KvPorts] = Handlers()

@handlers.on(RequestCode.GET_KV_CONFIG)
def get_config(request: Request[GetConfigRequest], ports: KvPorts) -> Reply: ...

handlers.bind(dispatcher, ports)
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from rocketq.protocol.bodies import Body
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers import Header
from rocketq.protocol.headers.by_code import decode_header
from rocketq.remoting.connection import Connection
from rocketq.remoting.dispatch import Answer, Handler, Registry

H = TypeVar("H")
_Ports = TypeVar("_Ports")


@dataclass(slots=True)
class Request(Generic[H]):
    """A request with its ext fields read; `header` is None where a code has none."""

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
    """An answer without what it takes over from its request."""

    code: int = ResponseCode.SUCCESS
    remark: str | None = None
    header: Header | None = field(default=None, kw_only=True)
    body: Body | bytes = field(default=b"", kw_only=True)

    def to_command(self, request: Command) -> Command:
        body = self.body if isinstance(self.body, bytes) else self.body.encode()
        ext_fields = self.header.encode() if self.header is not None else None
        return request.answer(self.code, remark=self.remark, ext_fields=ext_fields, body=body)


TypedAnswer = Reply | None | Coroutine[Any, Any, Reply | None]
TypedHandler = Callable[[Request[Any], _Ports], TypedAnswer]


class Handlers(Generic[_Ports]):
    """The handlers of one family, before they know their ports."""

    def __init__(self) -> None:
        self._by_code: dict[RequestCode, TypedHandler[_Ports]] = {}

    def on(self, *codes: RequestCode) -> Callable[[TypedHandler[_Ports]], TypedHandler[_Ports]]:
        """Serve these codes with the decorated function."""

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
        return answer.to_command(command) if isinstance(answer, Reply) else answer

    return handle
