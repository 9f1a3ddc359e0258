"""Delays replies until their changes of topics and groups are saved, and known to replicas and NameServers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Generator, Sequence
from typing import Any

from rocketq.broker.admin.autosave import TableAutosave
from rocketq.errors import StoreError
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, EncodedReply, Handler, RequestRejected, SlicedAnswer
from rocketq.remoting.dispatch import Answer, OrderedAnswer, PendingAnswer, UnencodedAnswer

_IMMEDIATE = (Command, EncodedReply, SlicedAnswer)
Share = Callable[[], Awaitable[None]]


class PersistBeforeReply:
    """Middleware: a reply waits until its request's changes are saved. Requests without changes are not delayed.

    Each of `shares` returns once all changes are shared, with in-sync replicas or NameServers. Changes by request codes
    in `unshared` are only saved.
    """

    def __init__(self, autosave: TableAutosave, shares: Sequence[Share], unshared: Collection[int] = ()) -> None:
        self._autosave = autosave
        self._shares = tuple(shares)
        self._unshared = frozenset(unshared)

    def __call__(self, code: int, handler: Handler) -> Handler:
        autosave, shares = self._autosave, () if code in self._unshared else self._shares

        def handle(request: Command, connection: Connection) -> Answer:
            before = autosave.changes
            answer = handler(request, connection)
            if answer is None or (isinstance(answer, _IMMEDIATE) and autosave.changes == before):
                return answer
            if isinstance(answer, EncodedReply):
                answer = answer.to_command()
            return _Saved(answer, autosave, shares, before)

        return handle


class _Saved(OrderedAnswer):
    """An answer that is delayed until the changes are saved."""

    def __init__(
        self, answer: Command | PendingAnswer, autosave: TableAutosave, shares: tuple[Share, ...], before: int
    ) -> None:
        self._answer = answer
        self._autosave = autosave
        self._shares = shares
        self._before = before

    def __await__(self) -> Generator[Any, None, Command | UnencodedAnswer | None]:
        return self._wait().__await__()

    def start(self) -> None:
        if isinstance(self._answer, OrderedAnswer):
            self._answer.start()

    def close(self) -> None:
        if not isinstance(self._answer, Command):
            self._answer.close()

    async def _wait(self) -> Command | UnencodedAnswer | None:
        autosave = self._autosave
        answer = self._answer if isinstance(self._answer, Command) else await self._answer
        try:
            await autosave.wait_saved()
            for share in self._shares if autosave.changes != self._before else ():
                await share()
        except (OSError, StoreError) as error:  # the autosave has logged it and tries again
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"the change could not be saved: {error}") from error
        return answer
