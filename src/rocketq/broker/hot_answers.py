"""Answers that are written but may not be sent yet: they wait until the log is as safe as they promise."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.remoting import Connection, Dispatcher
from rocketq.runtime.clock import Clock
from rocketq.store import Store

Link = TypeVar("Link")


@dataclass(frozen=True, slots=True)
class HeldAnswer(Generic[Link]):
    """Bytes for a peer, good once the log is safe up to `log_end`."""

    log_end: int
    deadline_ms: int
    link: Link
    data: bytes
    count: int


class HeldAnswers(Generic[Link]):
    """In the order of their positions, which is the order they come in. Whoever is returned is no longer held."""

    def __init__(self) -> None:
        self._held: deque[HeldAnswer[Link]] = deque()
        self.count = 0
        """How many requests wait."""

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def first(self) -> HeldAnswer[Link]:
        return self._held[0]

    def hold(self, answer: HeldAnswer[Link]) -> None:
        self._held.append(answer)
        self.count += answer.count

    def reached(self, log_offset: int) -> list[HeldAnswer[Link]]:
        """The log is safe up to here."""
        due = []
        while self._held and self._held[0].log_end <= log_offset:
            due.append(self._pop())
        return due

    def late(self, now_ms: int) -> list[HeldAnswer[Link]]:
        """Those that have waited long enough."""
        due = []
        while self._held and self._held[0].deadline_ms <= now_ms:
            due.append(self._pop())
        return due

    def all(self) -> list[HeldAnswer[Link]]:
        return [self._pop() for _ in range(len(self._held))]

    def _pop(self) -> HeldAnswer[Link]:
        answer = self._held.popleft()
        self.count -= answer.count
        return answer


class AnswerGate:
    """Sends answers when the store acknowledges what they are about; after its patience they say that it did not.

    `notify` may be called by any thread, whenever `Store.acknowledged_to` may have moved; everything else belongs to
    the loop's. The dispatcher is told how much is held, so that it counts, and a server that stops waits for it.
    """

    def __init__(self, store: Store, clock: Clock, dispatcher: Dispatcher) -> None:
        self._store = store
        self._clock = clock
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        self._held: HeldAnswers[Connection] = HeldAnswers()
        self._notified = False
        self._lost = False
        self._asked: object = None
        self._timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None

    def __len__(self) -> int:
        """How many requests wait."""
        return self._held.count

    def hold(self, connection: Connection, data: bytes, count: int, log_end: int) -> None:
        """Send these answers to `count` requests once everything up to `log_end` is acknowledged."""
        deadline_ms = self._clock.monotonic_ms() + self._store.config.sync_flush_timeout_ms
        self._held.hold(HeldAnswer(log_end, deadline_ms, connection, data, count))
        if self._emptied is None:
            self._emptied = asyncio.Event()
            self._dispatcher.wait_for(self._emptied.wait())
        self._ask()

    def notify(self, reached: bool = True) -> None:
        """Look again, soon; with False what is waited for will never come."""
        self._lost |= not reached
        if not self._notified:
            self._notified = True
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it whoever waited
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        self._notified, self._asked = False, None
        _send(self._held.reached(self._store.acknowledged_to))
        if self._lost:
            self._lost = False
            self._fail(self._held.all())
        self._ask()

    def _ask(self) -> None:
        """Be told when the first is on disk; whoever makes it safe elsewhere calls `notify`."""
        self._dispatcher.held_count = self._held.count
        if not self._held:
            if self._emptied is not None:
                self._emptied.set()
                self._emptied = None
            return
        gate, log_end = self._store.gate, self._held.first.log_end
        if self._store.acknowledged_to >= log_end:
            self.notify()
        elif self._asked is not gate and gate.position < log_end:
            self._asked = gate
            gate.hold(log_end, self.notify)
        if self._timer is None:
            wait_ms = max(0, self._held.first.deadline_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(wait_ms / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._fail(self._held.late(self._clock.monotonic_ms()))
        self._ask()

    def _fail(self, answers: list[HeldAnswer[Connection]]) -> None:
        reason = self._store.refusal or "the disk did not take the message in time"
        _send(replace(answer, data=_as_timed_out(answer.data, reason)) for answer in answers)


def _send(answers: Iterable[HeldAnswer[Connection]]) -> None:
    """One write for each peer; a closed connection takes none."""
    by_peer: dict[Connection, list[bytes]] = {}
    for answer in answers:
        by_peer.setdefault(answer.link, []).append(answer.data)
    for connection, pieces in by_peer.items():
        connection.write(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def _as_timed_out(data: bytes, reason: str) -> bytes:
    """The same answers, of messages that are stored but perhaps not on disk."""
    code = ResponseCode.FLUSH_DISK_TIMEOUT
    return b"".join(
        encode_command(replace(answer, code=code, remark=reason, json_members=None))
        for answer in FrameDecoder().feed(data)
    )
