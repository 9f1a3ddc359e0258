"""Delivers messages of the delay levels when they are due: the I/O around `levels`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from rocketq.broker.delay.levels import LOOK_MS, DelayCursors, Look
from rocketq.broker.stats.broker_metrics import DELAY
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.protocol.bodies.offsets import DelayOffsets
from rocketq.protocol.names import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from rocketq.runtime.clock import Clock
from rocketq.store import StateFile, StoreWriter
from rocketq.store.delivery_progress import LEVELS_MAX

log = logging.getLogger(__name__)

BATCH: Final = 256
"""Messages delivered per level before the event loop runs other work."""
_NEVER_TO: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC, TIMER_TOPIC})


class DelayService:
    """Runs on the event loop. Progress is in the progress page immediately and in `delayOffset.json` within seconds."""

    def __init__(
        self,
        store: StoreWriter,
        file: StateFile[DelayOffsets],
        stats: BrokerStats,
        clock: Clock,
        *,
        may_deliver: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_deliver`: whether this broker's lease as master is valid."""
        self._store = store
        self._may_deliver = may_deliver
        self._file = file
        self._stats = stats
        self._clock = clock
        self._saved: dict[int, int] = {}
        self._saving = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._has_run = False
        self._progress = store.delivery_progress()
        self._redeliverer = store.redeliverer(may_deliver_to=lambda topic: topic not in _NEVER_TO)
        self._cursors = DelayCursors(store.config.delays_ms, self._load())

    def _load(self) -> dict[int, int]:
        saved = {level: offset for level, offset in self._file.load().offsets.items() if 0 < level < LEVELS_MAX}
        self._saved = dict(saved)
        offsets = self._progress.load(saved)
        # The log may have lost its end: saved offsets behind the end would hide the messages that will get them.
        return {level: min(offset, self._end_of(level)) for level, offset in offsets.items()}

    def _end_of(self, level: int) -> int:
        return self._store.end_offset(SCHEDULE_TOPIC, level - 1)

    # running

    def start(self) -> None:
        """Continue from the saved offsets; a slave has saved its master's."""
        self._cursors, self._has_run = DelayCursors(self._store.config.delays_ms, self._load()), True
        for queue_id in self._store.queue_ids(SCHEDULE_TOPIC):
            self._cursors.add_level(queue_id + 1)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stop between two batches and save the offsets."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None
        await self.save()
        self._progress.close()

    async def _run(self) -> None:
        while True:
            try:
                busy = self._may_deliver() and self.step()
            except Exception:  # the loop continues after a failed step
                log.exception("delayed messages could not be delivered")
                busy = False
                await asyncio.sleep(1)
            await asyncio.sleep(0 if busy else self._pause_s())

    def _pause_s(self) -> float:
        now_ms = self._clock.now_ms()
        return min(max(self._cursors.next_look_ms(now_ms) - now_ms, 1), LOOK_MS) / 1000

    def step(self) -> bool:
        """Deliver at most one batch of each level; returns whether more is due."""
        now_ms = self._clock.now_ms()
        busy = False
        for look in self._cursors.looks(now_ms):
            busy |= self._deliver(look, now_ms)
        self._progress.mark()
        for count in self._redeliverer.take_counts():
            self._stats.stored(count.topic, count.count, count.size_bytes, 0, count.count, DELAY)
        return busy

    def _deliver(self, look: Look, now_ms: int) -> bool:
        count_max = BATCH if look.stop_offset is None else min(BATCH, max(look.stop_offset - look.offset, 1))
        done = self._redeliverer.deliver_due(
            SCHEDULE_TOPIC, look.level - 1, look.offset, now_ms=now_ms, due_to_ms=look.due_to_ms, count_max=count_max
        )
        if done.next_offset != look.offset:
            self._progress.put(look.level, done.next_offset)
        if done.failure is not None:
            self._cursors.failed(look.level, done.next_offset, now_ms)
            log.warning("delay level %d: delivery failed, retrying: %s", look.level, done.failure)
            return False
        self._cursors.delivered(look.level, done.next_offset, done.due_ms, self._end_of(look.level), now_ms)
        return done.due_ms is not None and done.due_ms <= now_ms

    # progress

    def offsets(self) -> DelayOffsets:
        return DelayOffsets(offsets=self._cursors.offsets())

    def positions(self) -> dict[int, tuple[int, int]]:
        """By level, the next offset and the queue's end."""
        return {level: (offset, self._end_of(level)) for level, offset in self._cursors.offsets().items()}

    async def save(self) -> None:
        """Save the offsets on another thread, after the delivered messages were flushed."""
        async with self._saving:
            offsets = self._cursors.offsets()
            if self._has_run and offsets != self._saved and self._store.failure is None:
                await asyncio.to_thread(self._save, offsets)

    def _save(self, offsets: dict[int, int]) -> None:
        self._store.flush()
        self._file.save(DelayOffsets(offsets=offsets))
        self._saved = offsets
