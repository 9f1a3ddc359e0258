"""Holds encoded answers until the log is flushed or replicated up to their message."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from rocketq.broker.ha.durability import SLAVE_REASONS
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.remoting import Dispatcher
from rocketq.runtime.clock import Clock
from rocketq.store import AppendStatus, FlushType, Store
from rocketq.store.flush import FlushGate, ReplicaGate

_SLAVE_CODES: Final = {
    AppendStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    AppendStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
}


class AnswerTarget(Protocol):
    """Receiver of answers: a connection. Ignores writes once it is closed."""

    def write(self, data: bytes) -> None: ...


TargetT = TypeVar("TargetT")
Parts = Sequence[tuple[TargetT, bytes]]


@dataclass(slots=True)
class HeldAnswer(Generic[TargetT]):
    """Answers to `count` requests, valid once the log is acknowledged up to `log_end`."""

    log_end: int
    deadline_ms: int
    parts: Parts[TargetT]
    count: int
    held_ms: int = 0
    """When it was held, by the monotonic clock."""


class HeldAnswers(Generic[TargetT]):
    """Held answers in order of log position, which is arrival order. Returned answers are removed."""

    def __init__(self) -> None:
        self._held: deque[HeldAnswer[TargetT]] = deque()
        self.count = 0
        """Number of waiting requests."""

    def __bool__(self) -> bool:
        return bool(self._held)

    @property
    def first(self) -> HeldAnswer[TargetT]:
        return self._held[0]

    def hold(self, answer: HeldAnswer[TargetT]) -> None:
        self._held.append(answer)
        self.count += answer.count

    def reached(self, log_offset: int) -> list[HeldAnswer[TargetT]]:
        """Remove and return the answers up to this position."""
        due = []
        while self._held and self._held[0].log_end <= log_offset:
            due.append(self._pop())
        return due

    def late(self, now_ms: int) -> list[HeldAnswer[TargetT]]:
        """Remove and return the answers whose deadline has passed."""
        due = []
        while self._held and self._held[0].deadline_ms <= now_ms:
            due.append(self._pop())
        return due

    def all(self) -> list[HeldAnswer[TargetT]]:
        return [self._pop() for _ in range(len(self._held))]

    def _pop(self) -> HeldAnswer[TargetT]:
        answer = self._held.popleft()
        self.count -= answer.count
        return answer


class AnswerGate:
    """Sends answers once the store acknowledges their messages; after a timeout they carry FLUSH_DISK_TIMEOUT or
    FLUSH_SLAVE_TIMEOUT.

    With no slave available, answers carry SLAVE_NOT_AVAILABLE and wait for the disk only. `notify` may be called by any
    thread when `Store.acknowledged_to` may have moved; all else runs on the loop. `Dispatcher.held_count` is kept up to
    date, so that a stopping server waits for held answers.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        dispatcher: Dispatcher,
        observe: Callable[[int, float], None] = lambda count, took_ms: None,
    ) -> None:
        """`observe` is called with the number of answered requests and the milliseconds they waited."""
        self._observe = observe
        self._store = store
        self._clock = clock
        self._dispatcher = dispatcher
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._held: HeldAnswers[AnswerTarget] = HeldAnswers()
        self._for_disk: HeldAnswers[AnswerTarget] = HeldAnswers()
        self._notified = False
        self._lost = False
        self._asked: dict[FlushGate, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Event | None = None
        dispatcher.add_pending_work(self._all_sent)

    def __len__(self) -> int:
        """Number of waiting requests."""
        return self._held.count + self._for_disk.count

    def hold(self, parts: Parts[AnswerTarget], count: int, log_end: int) -> None:
        """Send these answers to `count` requests once everything up to `log_end` is acknowledged."""
        store, held = self._store, self._held
        slaves = store.replica_gate
        deadline_ms = self._clock.monotonic_ms() + self._patience_ms(slaves)
        answer = HeldAnswer(log_end, deadline_ms, parts, count, self._clock.monotonic_ms())
        if slaves is not None and not slaves.is_available(log_end):
            answer.parts, held = _without_slave(parts, AppendStatus.SLAVE_NOT_AVAILABLE), self._for_disk
            if store.visible_to >= log_end:
                self._send([answer])
                return
        asked = bool(held) and self._timer is not None
        held.hold(answer)
        if asked:  # the gates are armed for the first answer, which precedes this one
            self._dispatcher.held_count += count
        else:
            self._ask()

    async def _all_sent(self) -> None:
        while len(self):
            self._emptied = self._emptied or asyncio.Event()
            await self._emptied.wait()

    def _patience_ms(self, slaves: ReplicaGate | None) -> int:
        config = self._store.config
        disk_ms = config.sync_flush_timeout_ms if config.flush_type is FlushType.SYNC_FLUSH or slaves is None else 0
        return max(disk_ms, 0 if slaves is None else slaves.timeout_ms)

    def notify(self, reached: bool = True) -> None:
        """Check held answers soon. `reached=False`: the awaited position will never be reached."""
        self._lost |= not reached
        if not self._notified:
            self._notified = True
            own = threading.get_ident() == self._thread_id
            with contextlib.suppress(RuntimeError):  # the loop is closed
                (self._loop.call_soon if own else self._loop.call_soon_threadsafe)(self._look)

    def _look(self) -> None:
        self._notified = False
        self._send(self._held.reached(self._store.acknowledged_to))
        if self._for_disk:
            self._send(self._for_disk.reached(self._store.visible_to))
        if self._lost:
            self._lost = False
            self._asked.clear()
            self._fail(self._held.all(), self._for_disk.all())
        self._ask()

    def _ask(self) -> None:
        """Arm the gates for the first answer of each kind, and the deadline timer."""
        self._dispatcher.held_count = len(self)
        if not self._held and not self._for_disk:
            if self._emptied is not None:
                self._emptied.set()
                self._emptied = None
            return
        store = self._store
        if self._held:
            self._ask_gates(self._held.first.log_end, store.acknowledged_to, (store.gate, store.replica_gate))
        if self._for_disk:
            self._ask_gates(self._for_disk.first.log_end, store.visible_to, (store.gate,))
        if self._timer is None:
            deadline_ms = min(held.first.deadline_ms for held in (self._held, self._for_disk) if held)
            wait_ms = max(0, deadline_ms - self._clock.monotonic_ms())
            self._timer = self._loop.call_later(wait_ms / 1000, self._on_timer)

    def _ask_gates(self, log_end: int, safe_to: int, gates: Iterable[FlushGate | None]) -> None:
        """Register for a position once per gate. The disk's gate is skipped if the message is durable already."""
        if safe_to >= log_end:
            self.notify()
            return
        for gate in gates:
            if gate is None or (gate is self._store.gate and self._store.durable_to >= log_end):
                continue
            if gate.position < log_end and self._asked.get(gate) != log_end:
                self._asked[gate] = log_end
                gate.hold(log_end, self.notify)

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.monotonic_ms()
        self._fail(self._held.late(now_ms), self._for_disk.late(now_ms))
        self._ask()

    def _fail(self, answers: list[HeldAnswer[AnswerTarget]], for_disk: list[HeldAnswer[AnswerTarget]]) -> None:
        """Send answers with a timeout code; a missing slave takes precedence over the disk."""
        reason = self._store.refusal or "the message was not flushed in time"
        slaves = self._store.replica_gate
        for answer in answers:
            if slaves is None or slaves.position >= answer.log_end:
                answer.parts = _with_code(answer.parts, ResponseCode.FLUSH_DISK_TIMEOUT, reason)
            else:
                answer.parts = _without_slave(answer.parts, AppendStatus.FLUSH_SLAVE_TIMEOUT)
        self._send([*answers, *for_disk])

    def _send(self, answers: Sequence[HeldAnswer[AnswerTarget]]) -> None:
        _send(answers)
        now_ms = self._clock.monotonic_ms() if answers else 0
        for answer in answers:
            self._observe(answer.count, now_ms - answer.held_ms)


def _send(answers: Sequence[HeldAnswer[AnswerTarget]]) -> None:
    """Write once per peer."""
    by_peer: dict[AnswerTarget, bytes] = {}
    for answer in answers:
        for link, data in answer.parts:
            by_peer[link] = by_peer[link] + data if link in by_peer else data
    for link, data in by_peer.items():
        link.write(data)


def _without_slave(parts: Parts[AnswerTarget], status: AppendStatus) -> Parts[AnswerTarget]:
    return _with_code(parts, _SLAVE_CODES[status], SLAVE_REASONS[status])


def _with_code(parts: Parts[AnswerTarget], code: ResponseCode, reason: str) -> Parts[AnswerTarget]:
    """The answers with another code: the message is stored, but not flushed or replicated."""
    return [
        (
            link,
            b"".join(
                encode_command(replace(answer, code=code, remark=reason, json_members=None))
                for answer in FrameDecoder().feed(data)
            ),
        )
        for link, data in parts
    ]
