"""Messages that a consumer holds of one queue: pulled, not finished."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rocketq.client.core.stored_messages import StoredMessage, delivered
from rocketq.kernel.record_batch import RecordBatch
from rocketq.protocol.bodies.clients import ProcessQueue as QueueReport
from rocketq.protocol.bodies.queues import MessageQueue

PULL_IDLE_MS_MAX: Final = 120_000
LOCK_LIFE_MS: Final = 30_000
"""How long a broker's lock is valid here without renewal; the broker keeps it twice as long."""


class ProcessQueue:
    """For messages that are consumed in any order."""

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        self.queue = queue
        self.dropped = False
        """Dropped: later results are ignored."""
        self.count = 0
        self.bytes = 0
        self.last_pull_ms = now_ms
        self.last_consume_ms = now_ms
        self.calls = 0
        """Unfinished listener calls, including those that have not started."""
        self._messages: OrderedDict[int, StoredMessage] = OrderedDict()
        self._started_ms: dict[int, int] = {}
        self._offset_max = -1

    @property
    def span(self) -> int:
        """From the lowest to the highest offset held."""
        return self._offset_max - next(iter(self._messages)) if self._messages else 0

    def __contains__(self, message: StoredMessage) -> bool:
        return self._messages.get(message.queue_offset) is message

    def put(self, messages: Sequence[StoredMessage]) -> Sequence[StoredMessage]:
        """Hold them; those that are new are returned."""
        if messages and messages[0].queue_offset > self._offset_max:  # the common case: all are new, and in order
            self._messages.update([(message.queue_offset, message) for message in messages])
            self._offset_max = messages[-1].queue_offset
            fresh = messages
        else:
            fresh = [message for message in messages if message.queue_offset not in self._messages]
            every = {**self._messages, **{message.queue_offset: message for message in fresh}}
            self._messages = OrderedDict(sorted(every.items()))
            self._offset_max = max(self._messages, default=self._offset_max)
        self.count += len(fresh)
        self.bytes += sum([message.body_bytes for message in fresh])
        return fresh

    def begin(self, messages: Sequence[StoredMessage], now_ms: int) -> None:
        """The listener is about to get them."""
        for message in messages:
            self._started_ms[message.queue_offset] = now_ms

    def finish(self, messages: Iterable[StoredMessage]) -> int | None:
        """Remove finished messages. Returns the offset to commit; None if nothing was held."""
        held, started_ms = self._messages, self._started_ms
        if not held:
            return None
        size = count = 0
        for message in messages:
            if held.pop(message.queue_offset, None) is not None:
                started_ms.pop(message.queue_offset, None)
                size += message.body_bytes
                count += 1
        self.count -= count
        self.bytes -= size
        return self.next_offset

    def counted_up(self, messages: Iterable[StoredMessage]) -> list[StoredMessage]:
        """Replaces messages that are still held by copies with one more reconsume attempt."""
        fresh = [
            delivered(message, reconsume_times=message.reconsume_times + 1) for message in messages if message in self
        ]
        for message in fresh:
            self._messages[message.queue_offset] = message
            self._started_ms.pop(message.queue_offset, None)
        return fresh

    @property
    def next_offset(self) -> int | None:
        """The lowest that is not finished; None as long as nothing was ever held."""
        if self._messages:
            return next(iter(self._messages))
        return self._offset_max + 1 if self._offset_max >= 0 else None

    def overdue(self, now_ms: int, timeout_ms: int) -> StoredMessage | None:
        """The lowest message if its listener exceeds the timeout. A message that is not started is never overdue."""
        first = next(iter(self._messages.values()), None)
        started_ms = self._started_ms.get(first.queue_offset) if first is not None else None
        return first if started_ms is not None and now_ms - started_ms > timeout_ms else None

    def pull_is_stuck(self, now_ms: int) -> bool:
        return now_ms - self.last_pull_ms > PULL_IDLE_MS_MAX

    def clear(self) -> None:
        self._messages.clear()
        self._started_ms.clear()
        self.count = self.bytes = 0

    def report(self, committed: int, clock_skew_ms: int = 0) -> QueueReport:
        """For operators; `clock_skew_ms` converts monotonic to wall-clock times."""
        return QueueReport(
            commit_offset=committed,
            cached_min_offset=next(iter(self._messages), 0),
            cached_max_offset=max(0, self._offset_max) if self._messages else 0,
            cached_count=self.count,
            cached_mib=self.bytes >> 20,
            dropped=self.dropped,
            last_pull_ms=self.last_pull_ms + clock_skew_ms,
            last_consume_ms=self.last_consume_ms + clock_skew_ms,
        )


class OrderlyQueue(ProcessQueue):
    """For messages that are consumed one after the other, under a broker's lock."""

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        super().__init__(queue, now_ms)
        self.locked = False
        self.lock_lost = False
        """A broker has rejected the lock: another member has it, and the queue must be dropped."""
        self.last_lock_ms = 0
        self.unlock_attempts = 0
        self._taken: OrderedDict[int, StoredMessage] = OrderedDict()

    def holds_lock(self, now_ms: int) -> bool:
        return self.locked and now_ms - self.last_lock_ms <= LOCK_LIFE_MS

    def set_lock(self, locked: bool, now_ms: int) -> None:
        self.locked = locked
        if locked:
            self.last_lock_ms = now_ms

    def take(self, count_max: int) -> list[StoredMessage]:
        """The next messages; they count as held until they are committed."""
        taken: list[StoredMessage] = []
        while self._messages and len(taken) < count_max:
            offset, message = self._messages.popitem(last=False)
            self._taken[offset] = message
            taken.append(message)
        return taken

    @property
    def waiting(self) -> int:
        """Held and not taken."""
        return len(self._messages)

    def commit(self) -> int | None:
        """All taken messages are done; returns the offset to commit, None if nothing was taken."""
        if not self._taken:
            return None
        last = next(reversed(self._taken))
        for message in self._taken.values():
            self.count -= 1
            self.bytes -= message.body_bytes
        self._taken.clear()
        return last + 1

    def roll_back(self) -> None:
        """All taken messages are to be consumed again."""
        self._put_back(list(self._taken.values()))

    def requeue(self, messages: Sequence[StoredMessage]) -> None:
        """Of the taken messages these are to be consumed again; they may be changed copies."""
        self._put_back(messages)

    def discard(self, messages: Iterable[StoredMessage]) -> None:
        """Of the taken messages these are done."""
        for message in messages:
            if self._taken.pop(message.queue_offset, None) is not None:
                self.count -= 1
                self.bytes -= message.body_bytes

    @property
    def span(self) -> int:
        """An orderly queue needs no limit on it."""
        return 0

    @property
    def next_offset(self) -> int | None:
        if self._taken:
            return next(iter(self._taken))
        return super().next_offset

    def clear(self) -> None:
        super().clear()
        self._taken.clear()

    def report(self, committed: int, clock_skew_ms: int = 0) -> QueueReport:
        held = super().report(committed, clock_skew_ms)
        taken = self._taken
        return QueueReport(
            commit_offset=held.commit_offset,
            cached_min_offset=held.cached_min_offset,
            cached_max_offset=held.cached_max_offset,
            cached_count=held.cached_count,
            cached_mib=held.cached_mib,
            transaction_min_offset=next(iter(taken), 0),
            transaction_max_offset=next(reversed(taken), 0),
            transaction_count=len(taken),
            locked=self.locked,
            unlock_attempts=self.unlock_attempts,
            last_lock_ms=self.last_lock_ms + clock_skew_ms if self.last_lock_ms else 0,
            dropped=held.dropped,
            last_pull_ms=held.last_pull_ms,
            last_consume_ms=held.last_consume_ms,
        )

    def _put_back(self, messages: Sequence[StoredMessage]) -> None:
        for message in reversed(messages):
            self._taken.pop(message.queue_offset, None)
            self._messages[message.queue_offset] = message
            self._messages.move_to_end(message.queue_offset, last=False)


class MessageList:
    """Messages that are made already, consumed as a RecordBatch is."""

    def __init__(self, messages: Sequence[StoredMessage]) -> None:
        self._messages = deque(messages)
        self.body_bytes = sum(message.body_bytes for message in messages)

    @property
    def count(self) -> int:
        return len(self._messages)

    @property
    def first_offset(self) -> int:
        return self._messages[0].queue_offset

    @property
    def last_offset(self) -> int:
        return self._messages[-1].queue_offset

    def take(self, count: int) -> list[StoredMessage]:
        taken = [self._messages.popleft() for _ in range(min(count, len(self._messages)))]
        self.body_bytes -= sum(message.body_bytes for message in taken)
        return taken

    def cut(self, count: int) -> MessageList:
        return MessageList(self.take(count))

    def messages(self) -> list[StoredMessage]:
        return list(self._messages)

    def bodies(self, inflate: Callable[[bytes, int], bytes]) -> list[bytes]:
        return [message.body for message in self._messages]

    def offsets(self) -> list[int]:
        return [message.queue_offset for message in self._messages]


class PulledQueue:
    """Not started until an offset is set. Messages are held in the batches they were pulled in."""

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        self.queue = queue
        self.dropped = False
        self.paused = False
        self.pull_offset: int | None = None
        self.position: int | None = None
        self.consumed: int | None = None
        self.count = 0
        self.bytes = 0
        self.last_pull_ms = now_ms
        self.seeks = 0
        """Pulls begun before the last seek do not count."""
        self._batches: deque[RecordBatch | MessageList] = deque()

    @property
    def span(self) -> int:
        return self._batches[-1].last_offset - self._batches[0].first_offset if self.count else 0

    def seek(self, offset: int) -> None:
        """Go on here; what is held is forgotten."""
        self._batches.clear()
        self.count = self.bytes = 0
        self.pull_offset = self.position = self.consumed = offset
        self.seeks += 1

    def put(self, batch: RecordBatch | MessageList | None, next_offset: int, seeks: int) -> bool:
        """The answer to a pull; False when a seek came in between."""
        if seeks != self.seeks or self.dropped:
            return False
        if batch is not None and batch.count:
            self._batches.append(batch)
            self.count += batch.count
            self.bytes += batch.body_bytes
        self.pull_offset = next_offset
        if not self.count:
            if self.consumed == self.position:
                self.consumed = next_offset  # no message in between matched
            self.position = next_offset
        return True

    def take(self, count_max: int) -> list[StoredMessage]:
        """The next messages; `position` is behind the last of them."""
        taken: list[StoredMessage] = []
        while self._batches and len(taken) < count_max and not self.paused and not self.dropped:
            batch = self._batches[0]
            before = batch.body_bytes
            taken += batch.take(count_max - len(taken))
            self.bytes -= before - batch.body_bytes
            if not batch.count:
                self._batches.popleft()
        if taken:
            self.count -= len(taken)
            self.position = taken[-1].queue_offset + 1
        return taken

    def take_next(self) -> StoredMessage | None:
        """The next message of the current batch; None where the next one is in another batch, or there is none."""
        if self.paused or self.dropped or not self._batches:
            return None
        batch = self._batches[0]
        if not batch.count:
            self._batches.popleft()
            return None
        before = batch.body_bytes
        message: StoredMessage = batch.take(1)[0]
        self.count -= 1
        self.bytes -= before - batch.body_bytes
        self.position = message.queue_offset + 1
        return message

    def take_parts(self, count_max: int) -> list[RecordBatch | MessageList]:
        """The next messages, in the batches they came in."""
        taken: list[RecordBatch | MessageList] = []
        left = count_max
        while left and self.ready:
            batch = self._batches[0]
            if batch.count <= left:
                self._batches.popleft()
            else:
                batch = batch.cut(left)
            if batch.count:
                taken.append(batch)
                left -= batch.count
                self.count -= batch.count
                self.bytes -= batch.body_bytes
                self.position = batch.last_offset + 1
        return taken

    def put_back(self, messages: Sequence[StoredMessage]) -> None:
        """The last messages taken were not consumed: they are next again, unless a seek came in between."""
        if messages and messages[-1].queue_offset + 1 == self.position:
            batch = MessageList(messages)
            self._batches.appendleft(batch)
            self.count += batch.count
            self.bytes += batch.body_bytes
            self.position = messages[0].queue_offset

    def mark_consumed(self) -> None:
        """All messages taken so far were consumed."""
        self.consumed = self.position

    @property
    def ready(self) -> bool:
        return self.count > 0 and not self.paused and not self.dropped
