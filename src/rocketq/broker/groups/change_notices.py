"""Requests from the broker to its clients over their connections."""

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
    """Send a one-way request to each client; unreachable clients are skipped."""
    command = make_request(header, opaque=0, body=body)
    for client in clients:
        try:
            client.connection.call_oneway(command)
        except RocketQError as error:
            log.debug("one-way request failed client=%s code=%d: %s", client.client_id, command.code, error)


class ChangeNotices:
    """Notifies the members of a group of changes: immediately, then after a pause that grows with the group.

    Changes during the pause are combined into one notice: each join of a group of thousands would otherwise cost
    thousands of requests.
    """

    def __init__(self, members: Callable[[str], list[Client]], later: Later) -> None:
        self._members = members
        self._later = later
        self._pausing: dict[str, bool] = {}
        """By group, whether it changed since the last notice."""

    def notify(self, group: str) -> None:
        if group in self._pausing:
            self._pausing[group] = True
            return
        clients = self._members(group)
        push(clients, ConsumersChangedRequest(group=group))
        self._pausing[group] = False
        self._later(len(clients) * _PAUSE_PER_MEMBER_S, partial(self._end_pause, group))

    def notify_later(self, group: str) -> None:
        """Notify a new group after 1.5 s. A Java client without the route of its retry topic requests it while
        rebalancing, and uses it in the next rebalance; 5.x clients rebalance once per second, and not in their first
        second."""
        self._later(_NEW_GROUP_S, partial(self.notify, group))

    def _end_pause(self, group: str) -> None:
        if self._pausing.pop(group):
            self.notify(group)


async def ask(client: Client, header: Header, timeout_ms: int, body: bytes = b"") -> Command:
    """Send a request to a client and return its answer; RemotingError if there is none."""
    return await client.connection.call(make_request(header, opaque=0, body=body), timeout_ms)


def relayed(code: RequestCode, request: Command, body: bytes = b"") -> Command:
    """A tool's request to forward to a client."""
    return Command(code=code, ext_fields=dict(request.ext_fields), body=body)
