"""Delivers timer messages when they are due: the I/O around `open_timers` and the store's timer files."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from rocketq.broker.admin.autosave import save_in_slices
from rocketq.broker.delay.open_timers import OpenTimer, OpenTimers, WaitingCounts
from rocketq.broker.stats.broker_metrics import DELAY
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.errors import DamagedStateError
from rocketq.model import NewMessage
from rocketq.protocol.bodies.stats import TimerMetrics
from rocketq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, Property
from rocketq.protocol.properties import decode_properties, encode_properties
from rocketq.runtime.clock import Clock
from rocketq.store import StoreWriter
from rocketq.store.disk import Disk
from rocketq.store.state_files import StateFile
from rocketq.store.timer_files import TimerMark, TimerPoint
from rocketq.store.timers import Timer

log = logging.getLogger(__name__)

BATCH: Final = 200
COPIES_BATCH: Final = 1_000
LOOK_MS: Final = 20
RETRY_MS: Final = 1_000
_NEVER_TO: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC})


class TimerService:
    """Runs on the event loop in small steps: link new messages into the wheel, load the current second, deliver due
    messages."""

    def __init__(
        self, store: StoreWriter, stats: BrokerStats, clock: Clock, *, may_deliver: Callable[[], bool] = lambda: True
    ) -> None:
        """`may_deliver`: whether this broker's lease as master is valid."""
        self._store = store
        self._may_deliver = may_deliver
        self._stats = stats
        self._clock = clock
        self._timers = store.timers(clock.now_ms())
        self._open: OpenTimers[TimerMark] = OpenTimers()
        self._redeliverer = store.redeliverer(may_deliver_to=lambda topic: topic not in _NEVER_TO)
        self._opening: Iterator[tuple[Timer, bool]] | None = None
        self._opened: list[tuple[Timer, bool]] = []
        self._retry_ms = 0
        self._caught_up = False
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._has_run = False
        self.is_closed = False
        """The timer files are closed; a stopping broker may still answer its last requests."""
        self._counts_file = StateFile(store.config.root / "config" / "timermetrics", TimerMetrics, Disk())
        self._counts = self._load_counts()
        self._counts_saved = self.waiting_counts().data_version

    def take_over(self, point: TimerPoint, store_end: int) -> None:
        """Continue from the previous master's point, before the first start as master. Blocks."""
        self._timers.take_over(point, store_end)
        self._counts = WaitingCounts()

    def start(self) -> None:
        self._has_run = True
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self.is_closed:
            return
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
            self._finish()
        await self.save()
        self.is_closed = True
        self._timers.close()

    def _finish(self) -> None:
        """Save progress in Apache's own fields, so that Apache's broker continues from here too."""
        while self._look_at_new(self._clock.now_ms()):
            pass
        if not self._open and self._opening is None:
            self._timers.settled(self._timers.mark())

    async def save(self) -> None:
        async with self._saving:
            if self._has_run and self._store.failure is None:
                counts = self.waiting_counts()
                await asyncio.to_thread(self._timers.save)
                if counts.data_version != self._counts_saved:
                    await save_in_slices(self._counts_file, counts)
                    self._counts_saved = counts.data_version

    async def _run(self) -> None:
        while True:
            try:
                busy = self._may_deliver() and self.step()
            except Exception:  # the loop continues after a failed step
                log.exception("messages with a timer could not be delivered")
                busy = False
                await asyncio.sleep(1)
            await asyncio.sleep(0 if busy else self._pause_s())

    def _pause_s(self) -> float:
        now_ms = self._clock.now_ms()
        due_ms = self._open.next_due_ms()
        wake_ms = min(self._timers.read_ms, now_ms + LOOK_MS if due_ms is None else max(due_ms, self._retry_ms))
        return min(max(wake_ms - now_ms, 1), LOOK_MS) / 1000

    def step(self) -> bool:
        """Run one bounded step; returns whether more work is due."""
        now_ms = self._clock.now_ms()
        busy = self._look_at_new(now_ms)
        self._caught_up |= not busy
        if self._caught_up:  # after a crash, read all recalls before delivering
            busy |= self._open_second(now_ms)
            busy |= self._deliver(now_ms)
        mark = self._open.completed_mark()
        if mark is not None:
            self._timers.settled(mark)
        for count in self._redeliverer.take_counts():
            self._stats.stored(count.topic, count.count, count.size_bytes, 0, count.count, DELAY)
            self._counts.add(count.topic, -count.count, now_ms)
        return busy

    # new messages

    def _look_at_new(self, now_ms: int) -> bool:
        if self._timers.look_for_copies(COPIES_BATCH):
            return True
        store = self._store
        end = store.max_offset(TIMER_TOPIC, 0)
        first = max(self._timers.queue_offset, store.min_offset(TIMER_TOPIC, 0))
        for offset in range(first, min(end, first + BATCH)):
            unit = store.queue_unit(TIMER_TOPIC, 0, offset)
            record = None if unit is None else store.message_at(unit[0])
            if record is None:
                log.error("message %d of %s cannot be read", offset, TIMER_TOPIC)
            elif not self._timers.is_settled(offset):
                timer = Timer.of(record)
                if not self._timers.is_over(timer):
                    self._take(timer, now_ms)
            self._timers.saw_message(offset)
        return end > first + BATCH

    def _take(self, timer: Timer, now_ms: int) -> None:
        topic = (timer.cancels or timer.key).partition("+")[0]
        self._counts.add(topic, -1 if timer.cancels else 1, now_ms)
        if timer.slot_ms == self._timers.read_ms and self._opening is not None:
            self._opened.append((timer, False))
        elif timer.slot_ms >= self._timers.read_ms:
            self._timers.link(timer, now_ms)
        elif timer.cancels:
            self._open.cancel(timer.cancels)
        else:
            self._add(timer, rolls=False)

    def _add(self, timer: Timer, *, rolls: bool) -> None:
        record = timer.record
        due_ms = 0 if rolls else timer.due_ms
        self._open.add(OpenTimer(due_ms, record.queue_offset, record.log_offset, record.size, timer.key, rolls))

    # the second that has come

    def _open_second(self, now_ms: int) -> bool:
        if self._opening is None:
            if self._timers.read_ms > now_ms:
                return False
            self._opening, self._opened = self._timers.open_slot(), []
        for _ in range(BATCH):
            found = next(self._opening, None)
            if found is None:
                self._second_is_open()
                break
            self._opened.append(found)
        return True

    def _second_is_open(self) -> None:
        cancelled = {timer.cancels for timer, rolls in self._opened if timer.cancels and not rolls}
        for timer, rolls in self._opened:
            if rolls or not (timer.cancels or timer.key in cancelled):
                self._add(timer, rolls=rolls)
        self._opening, self._opened = None, []
        self._open.mark(self._timers.slot_opened())

    # what is due

    def _deliver(self, now_ms: int) -> bool:
        if now_ms < self._retry_ms:
            return False
        for _ in range(BATCH):
            timer = self._open.pop_due(now_ms)
            if timer is None:
                return False
            if timer.rolls:
                failure = self._roll(timer)
            else:
                failure = self._redeliverer.deliver_one(
                    TIMER_TOPIC, 0, timer.queue_offset, timer.log_offset, timer.size, now_ms=now_ms
                ).failure
            if failure is not None:
                self._open.put_back(timer)
                self._retry_ms = now_ms + RETRY_MS
                log.warning("delivery of messages with a timer waits: %s", failure)
                return False
            self._open.complete(timer)
        return True

    def _roll(self, timer: OpenTimer) -> str | None:
        """Store a message that is due too late for the wheel again; returns the failure, or None."""
        record = self._store.message_at(timer.log_offset)
        if record is None:
            log.error("the message at log offset %d is gone before it was due", timer.log_offset)
            return None
        properties = decode_properties(record.properties)
        times = int(properties.get(Property.TIMER_ROLL_TIMES, "0") or "0")
        properties[Property.TIMER_ROLL_TIMES] = str(times + 1)
        message = NewMessage(
            topic=TIMER_TOPIC,
            queue_id=0,
            body=record.body,
            properties=encode_properties(properties),
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_ms=record.born_ms,
            born_host=record.born_host,
            reconsume_times=record.reconsume_times,
            prepared_offset=record.log_offset or -1,
        )
        result = self._store.append(message, wait=False)
        if result.status.stored:  # counted again when it is read from the timer topic
            self._counts.add(properties.get(Property.REAL_TOPIC, ""), -1, self._clock.now_ms())
        return None if result.status.stored else result.reason or result.status.value

    # requests of operators and slaves

    def check_point(self) -> bytes:
        """The first fields of the file timercheck."""
        return self._timers.check_point()

    def waiting_counts(self) -> TimerMetrics:
        return self._counts.table(self._clock.now_ms())

    @property
    def queue_offset(self) -> int:
        """The next message of the timer topic to put into the wheel."""
        return self._timers.queue_offset

    def late_ms(self) -> int:
        """How long the first message that is due has been waiting for delivery."""
        due_ms = self._open.next_due_ms()
        return 0 if due_ms is None else max(0, self._clock.now_ms() - due_ms)

    def count_from(self, slot_ms: int, slots: int) -> int:
        """Waiting messages in this many slots of the wheel from a time on."""
        return self._timers.count_from(slot_ms, slots)

    def _load_counts(self) -> WaitingCounts:
        try:
            return WaitingCounts(self._counts_file.load())
        except DamagedStateError as error:  # advisory counts: the broker starts without them
            log.warning("counts of timer messages restart at 0: %s", error)
            self._counts_file.path.unlink(missing_ok=True)
            self._counts_file.backup.unlink(missing_ok=True)
            return WaitingCounts(self._counts_file.load())

    # recalls

    def can_recall(self, slot_ms: int, key: str) -> bool:
        """Whether a message can still be recalled: its slot is in the future, or it is not delivered yet."""
        self._look_at_new(self._clock.now_ms())
        if slot_ms >= self._timers.read_ms:
            return True
        return self._open.is_open(key) or any(timer.key == key for timer, _ in self._opened)

    def recall(self, message: NewMessage) -> str | None:
        """Store and apply a cancelling message; returns the failure, or None."""
        result = self._store.append(message, wait=False)
        if not result.status.stored:
            return result.reason or result.status.value
        while self._look_at_new(self._clock.now_ms()):
            pass
        return None
