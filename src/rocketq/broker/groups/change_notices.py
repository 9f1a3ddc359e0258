"""Requests of the broker to its clients, over their own connections."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from rocketq.broker.groups.members import Member
from rocketq.errors import RocketQError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers import Header
from rocketq.protocol.headers.groups import ConsumersChangedRequest
from rocketq.protocol.requests import make_request
from rocketq.remoting import Connection

log = logging.getLogger(__name__)

Client = Member[Connection]
Later = Callable[[float, Callable[[], None]], object]
"""A loop's call_later."""

_PAUSE_PER_MEMBER_S: Final = 0.001
_NEW_GROUP_S: Final = 1.5


def push(clients: Iterable[Client], header: Header, body: bytes = b"") -> None:
    """To each of them, without an answer; who cannot be reached is left out."""
    command = make_request(header, opaque=0, body=body)
    for client in clients:
        try:
            client.connection.call_oneway(command)
        except RocketQError as error:
            log.debug("%s was not told (request %d): %s", client.client_id, command.code, error)


class ChangeNotices:
    """Tells the members of a group that it changed: at once, then not again before a pause that grows with the group.

    Changes in the pause are told together when it is over: who joins a group of thousands must not cost thousands of
    requests each.
    """

    def __init__(self, members: Callable[[str], list[Client]], later: Later) -> None:
        self._members = members
        self._later = later
        self._pausing: dict[str, bool] = {}
        """By group, whether it changed since it was told."""

    def notify(self, group: str) -> None:
        if group in self._pausing:
            self._pausing[group] = True
            return
        clients = self._members(group)
        push(clients, ConsumersChangedRequest(group=group))
        self._pausing[group] = False
        self._later(len(clients) * _PAUSE_PER_MEMBER_S, partial(self._end_pause, group))

    def notify_later(self, group: str) -> None:
        """Of a group that has just come to be. A Java client that does not know the route of its retry topic looks for
        it when it divides the queues, which is after its first heartbeats, and uses it when it divides them again; one
        of 5.x does that once in a second, and not in its first."""
        self._later(_NEW_GROUP_S, partial(self.notify, group))

    def _end_pause(self, group: str) -> None:
        if self._pausing.pop(group):
            self.notify(group)


async def ask(client: Client, header: Header, timeout_ms: int, body: bytes = b"") -> Command:
    """The client's answer; RemotingError when there is none."""
    return await client.connection.call(make_request(header, opaque=0, body=body), timeout_ms)


def relayed(code: RequestCode, request: Command, body: bytes = b"") -> Command:
    """A tool's request as it is passed on to a client."""
    return Command(code=code, ext_fields=dict(request.ext_fields), body=body)
