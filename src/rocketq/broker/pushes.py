"""Requests of the broker to its clients, over their own connections."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from rocketq.broker.members import Member
from rocketq.errors import RocketQError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers import Header
from rocketq.protocol.headers.membership import ConsumersChangedRequest
from rocketq.protocol.requests import make_request
from rocketq.remoting import Connection

log = logging.getLogger(__name__)

Client = Member[Connection]


def push(clients: Iterable[Client], header: Header, body: bytes = b"") -> None:
    """To each of them, without an answer; who cannot be reached is left out."""
    command = make_request(header, opaque=0, body=body)
    for client in clients:
        try:
            client.link.call_oneway(command)
        except RocketQError as error:
            log.debug("%s was not told (request %d): %s", client.client_id, command.code, error)


def tell_members_changed(clients: Iterable[Client], group: str) -> None:
    push(clients, ConsumersChangedRequest(group=group))


async def ask(client: Client, header: Header, timeout_ms: int, body: bytes = b"") -> Command:
    """The client's answer; RemotingError when there is none."""
    return await client.link.call(make_request(header, opaque=0, body=body), timeout_ms)


def relayed(code: RequestCode, request: Command, body: bytes = b"") -> Command:
    """A tool's request as it is passed on to a client."""
    return Command(code=code, ext_fields=dict(request.ext_fields), body=body)
