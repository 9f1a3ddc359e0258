"""Read a range of one queue with several pulls in flight, over failures of brokers and connections."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from rocketq.client.blocking.client import BlockingClient, ReadInto
from rocketq.client.core.routes import MASTER_ID
from rocketq.client.errors import NoQueueError
from rocketq.errors import RemoteProtocolError, RemotingError, RocketQError, UnreachableError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import TopicNotFoundError, failure_of
from rocketq.protocol.flags import ExpressionType, PullFlag
from rocketq.protocol.headers.pull import PullRequest, PullResponse
from rocketq.protocol.requests import make_request
from rocketq.runtime.machine import boot_id

log = logging.getLogger(__name__)

FIRST_COUNT: Final = 256
FILL: Final = 0.9
"""Of the bytes of an answer, aimed at: sizes vary, and an overfull answer costs a second pull."""


BodyT = TypeVar("BodyT", bound=Sized)
"""What an answer brings; its length is that of its records."""


@dataclass(slots=True, eq=False)
class Step(Generic[BodyT]):
    """A part [low, high) of the stretch; `low` moves as answers come."""

    low: int
    high: int
    is_sent: bool = False
    bodies: list[BodyT] = field(default_factory=list)


class ReadAhead(Generic[BodyT]):
    """Pure: from the answers so far, it computes what to pull next and what is ready."""

    def __init__(self, low: int, high: int, *, depth: int, count_max: int, bytes_max: int) -> None:
        self._next = low
        self._high = high
        self._depth = depth
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = min(FIRST_COUNT, count_max)
        self._steps: deque[Step[BodyT]] = deque()
        self.handed_to = low
        """ready() has returned everything before it."""

    @property
    def is_done(self) -> bool:
        return not self._steps and self._next >= self._high

    def due(self) -> list[Step[BodyT]]:
        """Steps to pull now: each at its `low`, at most `high - low` messages."""
        due = [step for step in self._steps if not step.is_sent]
        while len(self._steps) < self._depth and self._next < self._high:
            step = Step[BodyT](self._next, min(self._next + self._count, self._high))
            self._next = step.high
            self._steps.append(step)
            due.append(step)
        for step in due:
            step.is_sent = True
        return due

    def is_first(self, step: Step[BodyT]) -> bool:
        """Whether everything before this step's `low` was returned: its answer may be passed on without waiting."""
        return self._steps[0] is step and not step.bodies

    def answered(self, step: Step[BodyT], body: BodyT, next_offset: int, *, passed_bytes: int = 0) -> None:
        """The answer to a step's pull: messages up to `next_offset`. The body is empty if `passed_bytes` of it were
        passed on already."""
        count, size_bytes = next_offset - step.low, len(body) or passed_bytes
        if count > 0 and size_bytes:
            self._learn(count, size_bytes, step.high - step.low)
        if body:
            step.bodies.append(body)
        step.low = max(step.low, next_offset)
        if self._depth == 1:
            self._next = max(self._next, next_offset)  # a filtered answer may end beyond its step
        step.is_sent = step.low >= step.high

    def failed(self, step: Step[BodyT]) -> None:
        """No answer came: the step is sent again."""
        step.is_sent = False

    def ready(self) -> list[BodyT]:
        """The next bodies in queue order, each returned once."""
        bodies: list[BodyT] = []
        while self._steps:
            step = self._steps[0]
            bodies += step.bodies
            step.bodies.clear()
            self.handed_to = step.low
            if step.low < step.high:
                break
            self._steps.popleft()
        return bodies

    def _learn(self, count: int, size_bytes: int, asked: int) -> None:
        fitting = max(1, int(self._bytes_max * FILL / (size_bytes / count)))
        if count < asked and size_bytes * 2 < self._bytes_max:
            fitting = min(fitting, count)  # the broker has a smaller limit than we asked for
        self._count = max(1, min(fitting, self._count_max))


EVERYTHING: Final = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    group: str
    expression: str = EVERYTHING
    expression_type: str = ExpressionType.TAG
    count_max: int = 8_192
    bytes_max: int = 4 << 20
    depth: int = 3
    timeout_ms: int = 10_000
    retries: int = 5
    retry_ms: int = 500
    in_place: bool = False
    """Records of a broker on this machine may be read from its files: the sink must be able to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLocations:
    """Messages [low, high) of a queue that a broker has on this machine: where its log is, and where in it they are
    (see kernel/reader.py)."""

    low: int
    high: int
    folder: str
    folder_id: str
    file_bytes: int
    size_bytes: int
    places: bytes

    def __len__(self) -> int:
        return self.size_bytes


@dataclass(frozen=True, slots=True)
class HeldRecords:
    """An answer that came before earlier ones; only its records below `high` count."""

    data: bytes
    high: int

    def __len__(self) -> int:
        return len(self.data)


Body = HeldRecords | RecordLocations


class LocalReadError(RocketQError):
    """Files of a log are not visible here, or no longer have the records that the broker named."""


class BodySink(Protocol):
    """Where the bodies of answers go, in queue order, each a run of whole records.

    A broker that passes messages it cannot read gives others for them, and so more than was asked for: those at `high`
    and beyond are none of this body's.
    """

    def take(self, size: int, into: ReadInto, high: int) -> None:
        """Read all `size` bytes of one body. If `into` raises, nothing of the body is kept: it is read again."""

    def append_local(self, placed: RecordLocations) -> None:
        """Read all records, or raise LocalReadError and read none: they are then read over the network."""


class RangeGoneError(RocketQError):
    """The broker does not hold what was to be read: [low, high) of the queue is missing."""

    def __init__(self, queue: MessageQueue, low: int, high: int) -> None:
        super().__init__(
            f"{queue.topic} queue {queue.queue_id} of {queue.broker_name}: offsets {low} to {high - 1} are gone"
        )
        self.queue = queue
        self.low = low
        self.high = high


class QueueReader:
    """Reads [low, high) of a queue once; bodies come in queue order, each a run of whole records."""

    def __init__(
        self,
        client: BlockingClient,
        queue: MessageQueue,
        low: int,
        high: int,
        options: ReadOptions,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._queue = queue
        self._options = options
        self._pause = pause
        self._is_filtered = options.expression != EVERYTHING
        self._low, self._high = low, high
        self._broker_id = MASTER_ID
        self._addr: str | None = None
        self._failures = 0
        self._in_place = options.in_place and bool(boot_id())
        self._waiting: dict[int, Step[Body]] = {}
        self._depth = 1 if self._is_filtered else options.depth  # the end of a filtered answer is not known in advance
        self._ahead = self._steps_from(low)

    def _steps_from(self, low: int) -> ReadAhead[Body]:
        options = self._options
        return ReadAhead[Body](
            low,
            self._high,
            depth=self._depth,
            count_max=options.count_max,
            bytes_max=options.bytes_max,
        )

    @property
    def next_offset(self) -> int:
        """Everything before it has been returned."""
        return self._ahead.handed_to

    def __iter__(self) -> Iterator[bytes]:
        self._in_place, self._depth = False, 1  # bodies are returned as they are: they must not overlap
        self._ahead = self._steps_from(self._low)
        bodies = _Bodies()
        for _ in self.feed(bodies):
            yield from bodies.taken()

    def feed(self, sink: BodySink) -> Iterator[None]:
        """The same into a sink, streamed from the broker where possible; yields once per answer."""
        try:
            while not self._ahead.is_done:
                try:
                    self._advance(sink)
                except (RemotingError, NoQueueError, TopicNotFoundError) as error:  # a topic goes with its last broker
                    self._handle_failure(error)
                self._hand_over(sink)
                yield
        finally:
            self._abandon()

    def _hand_over(self, sink: BodySink) -> None:
        """Pass on the next bodies. If the files lack one, everything from there on is requested again, as records."""
        for body in self._ahead.ready():
            if isinstance(body, HeldRecords):
                sink.take(len(body), _from_memory(body.data), body.high)
                continue
            try:
                sink.append_local(body)
            except LocalReadError as reason:
                log.info("%s queue %d: read over the network: %s", self._queue.topic, self._queue.queue_id, reason)
                self._in_place = False
                self._abandon()
                self._ahead = self._steps_from(body.low)
                return

    def _advance(self, sink: BodySink) -> None:
        """Send the steps that are due, process one answer."""
        addr = self._client.broker(
            self._queue.topic, self._queue.broker_name, broker_id=self._broker_id, fresh=self._failures > 0
        )
        if self._addr != addr:
            self._abandon()  # what was asked there is asked here again
        self._addr = addr
        link = self._client.link(addr)
        due = self._ahead.due()
        while due:
            step = due.pop(0)
            try:
                request = self._request(step, in_place=self._in_place and link.is_local)
                self._waiting[link.send(self._client.signed(request))] = step
            except RemotingError:
                for each in (step, *due):
                    self._ahead.failed(each)
                raise
        streamed = 0

        def take(answer: Command, size: int, into: ReadInto) -> bool:
            nonlocal streamed
            step = self._waiting.get(answer.opaque)
            if step is None or not self._is_next(step, answer):
                return False
            sink.take(size, into, self._limit(step))
            streamed = size
            return True

        answer = link.receive(PullRequest.CODE, self._options.timeout_ms, take)
        answered = self._waiting.pop(answer.opaque, None)
        if answered is not None:
            self._take(answered, answer, addr, streamed)

    def _limit(self, step: Step[Body]) -> int:
        """Records at and beyond it belong to another step; without other steps in flight there is no limit."""
        return self._high if self._depth == 1 else step.high

    def _is_next(self, step: Step[Body], answer: Command) -> bool:
        """Whether its records follow directly on those already returned."""
        if answer.code != ResponseCode.SUCCESS or not self._ahead.is_first(step):
            return False
        header = PullResponse.decode(answer.ext_fields)
        return header.next_offset > step.low and header.log_folder is None

    def _request(self, step: Step[Body], *, in_place: bool) -> Command:
        options = self._options
        header = PullRequest(
            group=options.group,
            topic=self._queue.topic,
            queue_id=self._queue.queue_id,
            queue_offset=step.low,
            count_max=min(step.high - step.low, options.count_max),
            sys_flag=int(PullFlag.SUBSCRIPTION),
            subscription=options.expression,
            expression_type=options.expression_type,
            bytes_max=options.bytes_max,
            reader_boot_id=boot_id() if in_place else None,
        )
        return make_request(header, opaque=0)

    def _take(self, step: Step[Body], answer: Command, addr: str, streamed: int) -> None:
        match answer.code:
            case ResponseCode.SUCCESS | ResponseCode.PULL_RETRY_IMMEDIATELY:
                header = PullResponse.decode(answer.ext_fields)
                if header.next_offset <= step.low:
                    raise RangeGoneError(self._queue, step.low, step.high)
                if header.log_folder is not None and not self._in_place:
                    raise RemoteProtocolError(f"{addr} answered with locations instead of records")
                body: Body = HeldRecords(b"", 0)
                if answer.code == ResponseCode.SUCCESS:
                    body = _body(answer, header, step.low, self._limit(step))
                self._ahead.answered(step, body, header.next_offset, passed_bytes=streamed)
                self._broker_id = header.suggested_broker_id
                self._failures = 0
            case ResponseCode.PULL_OFFSET_MOVED | ResponseCode.PULL_NOT_FOUND:
                self._ahead.failed(step)
                if addr != self._client.master(self._queue.topic, self._queue.broker_name):
                    self._retry_on_master(addr)
                else:
                    raise self._gone(step, PullResponse.decode(answer.ext_fields))
            case _:
                error = failure_of(answer, peer=addr)
                self._ahead.failed(step)
                if not error.retriable:
                    raise error
                self._handle_failure(error)

    def _gone(self, step: Step[Body], header: PullResponse) -> RangeGoneError:
        """The broker's next offset ends the gap, unless the queue is shorter than that."""
        beyond = header.next_offset if step.low < header.next_offset < header.max_offset else step.high
        return RangeGoneError(self._queue, step.low, min(beyond, step.high))

    def _retry_on_master(self, addr: str) -> None:
        """A slave may lag behind its master; while the master is unavailable this counts as a failure."""
        if self._broker_id != MASTER_ID:
            self._broker_id = MASTER_ID
        else:
            self._handle_failure(UnreachableError(addr, "the slave lacks messages and the master is unavailable"))

    def _handle_failure(self, error: RocketQError) -> None:
        """Request what is missing again after a pause; raises the failure after too many."""
        self._failures += 1
        if self._failures > self._options.retries:
            raise error
        self._abandon()
        if self._addr is not None:
            self._client.drop(self._addr)
        self._broker_id = MASTER_ID
        if self._failures > 1:  # the first is most often a connection that was idle for too long
            self._pause(self._options.retry_ms / 1000)

    def _abandon(self) -> None:
        """Close the connection of outstanding answers instead of waiting for them."""
        for step in self._waiting.values():
            self._ahead.failed(step)
        if self._waiting and self._addr is not None:
            self._client.drop(self._addr)
        self._waiting.clear()


class _Bodies:
    """A sink that keeps bodies as they are."""

    def __init__(self) -> None:
        self._taken: list[bytes] = []

    def take(self, size: int, into: ReadInto, high: int) -> None:
        body = bytearray(size)
        into(memoryview(body))
        self._taken.append(bytes(body))

    def append_local(self, placed: RecordLocations) -> None:
        raise LocalReadError("this sink needs records, not their locations")

    def taken(self) -> list[bytes]:
        """What came since the last call."""
        taken, self._taken = self._taken, []
        return taken


def _body(answer: Command, header: PullResponse, low: int, high: int) -> Body:
    if header.log_folder is None:
        return HeldRecords(answer.body, high)
    return RecordLocations(
        low=low,
        high=high,
        folder=header.log_folder,
        folder_id=header.log_folder_id or "",
        file_bytes=header.log_file_bytes or 0,
        size_bytes=max(header.placed_bytes or 0, len(answer.body)),
        places=answer.body,
    )


def _from_memory(body: bytes) -> ReadInto:
    at = 0

    def into(piece: memoryview) -> None:
        nonlocal at
        piece[:] = memoryview(body)[at : at + len(piece)]
        at += len(piece)

    return into
