"""Settings of producers and consumers, checked when they are constructed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from rocketq.client.core.allocation import AllocationStrategy, Averagely
from rocketq.client.core.batches import BATCH_BYTES_MAX, Batching
from rocketq.client.core.consume_results import ConsumeHook, PullFilter
from rocketq.client.core.messages import BODY_BYTES_MAX, COMPRESS_FROM_BYTES, EncodeOptions
from rocketq.client.core.routes import FaultLatencyConfig
from rocketq.client.core.send_flow import RETRIED_CODES, RetryPolicy
from rocketq.client.core.subscriptions import ALL
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.compression import Compression
from rocketq.protocol.failures import SubscriptionRejectedError
from rocketq.protocol.flags import ConsumeFromWhere, MessageModel
from rocketq.protocol.names import AUTO_CREATE_TOPIC, TRACE_TOPIC, group_fault

PULL_BYTES_MAX: Final = 256 << 10


Milliseconds = int | timedelta
"""A span of time, as a number of milliseconds or a timedelta."""


def milliseconds(span: Milliseconds) -> int:
    return span if isinstance(span, int) else round(span / timedelta(milliseconds=1))


def convert_spans(settings: Any) -> None:
    """Replace timedeltas of a frozen dataclass by milliseconds."""
    for item in fields(settings):
        if item.name.endswith("_ms") and isinstance(value := getattr(settings, item.name), timedelta):
            object.__setattr__(settings, item.name, milliseconds(value))


Start = str | datetime | timedelta | ConsumeFromWhere
"""`"earliest"`, `"latest"`, a time, or an age such as `timedelta(hours=1)`."""
TopicList = str | Iterable[str] | Mapping[str, str]
"""Topics to subscribe to; a mapping also has their tag expressions."""

_Consuming = TypeVar("_Consuming", "PushConfig", "PullConfig")


def starting(config: _Consuming, start: Start | None, now_ms: int) -> _Consuming:
    """The settings with the start of the short form; ConfigError if it is unknown."""
    match start:
        case None:
            return config
        case ConsumeFromWhere():
            return replace(config, from_where=start)
        case "earliest":
            return replace(config, from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
        case "latest":
            return replace(config, from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
        case datetime():
            time_ms = round(start.timestamp() * 1000)
        case timedelta():
            time_ms = now_ms - milliseconds(start)
        case _:
            raise ConfigError(f'start must be "earliest", "latest", a datetime or a timedelta, got {start!r}')
    return replace(config, from_where=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, from_time_ms=time_ms)


def expressions_of(topics: TopicList | None) -> dict[str, str]:
    """Tag expressions by topic."""
    if topics is None:
        return {}
    if isinstance(topics, str):
        return {topics: ALL}
    return dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, ALL)


class HoldReason(StrEnum):
    """Why pulls of a queue are paused by flow control."""

    COUNT = "too many messages are held"
    BYTES = "too many bytes are held"
    SPAN = "the lowest message held is too far behind"


class Held(Protocol):
    @property
    def queue(self) -> MessageQueue: ...

    @property
    def count(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def span(self) -> int: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PullWindow:
    """Limits per queue; limits per topic are divided by the number of owned queues."""

    count_max: int = 2_000
    bytes_max: int = 100 << 20
    span_max: int = 4_000
    topic_count_max: int | None = None
    topic_bytes_max: int | None = None

    def shared_by(self, owned_count: int) -> PullWindow:
        """The limits of each queue while `owned_count` queues are owned."""
        owned = max(1, owned_count)
        count = self.topic_count_max // owned if self.topic_count_max is not None else self.count_max
        size = self.topic_bytes_max // owned if self.topic_bytes_max is not None else self.bytes_max
        return replace(self, count_max=max(1, count), bytes_max=max(1 << 20, size))

    def hold_reason(self, held: Held) -> HoldReason | None:
        """The reason to delay the next pull; None if it may start."""
        if held.count > self.count_max:
            return HoldReason.COUNT
        if held.bytes > self.bytes_max:
            return HoldReason.BYTES
        if held.span > self.span_max:
            return HoldReason.SPAN
        return None


def _within(value: int, low: int, high: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} is a whole number from {low} to {high}, not {value!r}")


def _check_choices(model: MessageModel, from_where: ConsumeFromWhere) -> None:
    """A string would compare unequal to every member without an error."""
    if not isinstance(model, MessageModel):
        raise ConfigError(f"model is a MessageModel, such as MessageModel.BROADCASTING, not {model!r}")
    if not isinstance(from_where, ConsumeFromWhere):
        example = "ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET"
        raise ConfigError(f"from_where is a ConsumeFromWhere, such as {example}, not {from_where!r}")


def _check_window(window: PullWindow) -> None:
    _within(window.count_max, 1, 65_535, "window.count_max")
    _within(window.bytes_max, 1, 1 << 30, "window.bytes_max")
    _within(window.span_max, 1, 65_535, "window.span_max")
    if window.topic_count_max is not None:
        _within(window.topic_count_max, 1, 6_553_500, "window.topic_count_max")
    if window.topic_bytes_max is not None:
        _within(window.topic_bytes_max, 1, 102_400 << 20, "window.topic_bytes_max")


@dataclass(frozen=True, slots=True, kw_only=True)
class PushConfig:
    """Settings of a push consumer; defaults are those of Apache's clients."""

    orderly: bool = False
    """Consume each queue in order, one call at a time, under a lock of the broker."""
    model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING divides the queues among the members, BROADCASTING gives every member all of them."""
    from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group without committed offsets starts."""
    from_time_ms: int | None = None
    """For CONSUME_FROM_TIMESTAMP; None is half an hour before the start."""
    strategy: AllocationStrategy = field(default_factory=Averagely)
    broker_assigns: bool = False
    """Let brokers assign queues. If the first request for a topic is rejected, members assign its queues themselves."""
    workers: int = 20
    """Calls of the listener at the same time: threads for a plain function, tasks for an asynchronous one."""
    on_loop: bool = False
    """Call a plain function on the event loop: fastest, for listeners that never block."""
    batch_max: int = 1
    """Messages per call."""
    pull_batch_max: int = 1_024
    """Messages per pull; brokers other than ours give at most their own limit, usually 32."""
    pull_bytes_max: int = PULL_BYTES_MAX
    """Bytes of records per pull. Brokers before 5.1 ignore it."""
    pull_interval_ms: int = 0
    post_subscription: bool = False
    """Send the subscription with each pull: brokers filter by it, not by that of the last heartbeat."""
    window: PullWindow = field(default_factory=PullWindow)
    max_reconsume_times: int = -1
    """ProducerPipeline after the first before a message is dead; -1 is 16, in order without end."""
    suspend_ms: int = 1_000
    """Orderly: how long a queue pauses after a failure."""
    consume_timeout_ms: int = 15 * 60_000
    """A message whose listener runs longer is sent back, so that it does not block the offset of the others."""
    shutdown_wait_ms: int = 10_000
    """How long close() waits for running listeners."""
    offset_dir: Path | None = None
    """BROADCASTING: offsets are in `<offset_dir>/<group>/offsets.json`. None: `~/.rocketq/offsets/<ip>@<instance>`."""
    hooks: Sequence[ConsumeHook] = ()
    filters: Sequence[PullFilter] = ()
    on_error: Callable[[SubscriptionRejectedError], None] | None = None
    """Called on the event loop when a broker rejects a subscription after the start. None: close() raises it."""
    trace: bool = False
    """Send a record of every listener call to the trace topic."""
    trace_topic: str = TRACE_TOPIC
    rebalance_interval_ms: int = 20_000
    persist_interval_ms: int = 5_000
    lock_interval_ms: int = 20_000
    hold_ms: int = 15_000
    """How long a broker may hold a pull until there is a message."""
    pull_timeout_ms: int = 30_000
    retry_ms: int = 1_000
    """Between a failed pull and the next."""
    resubmit_ms: int = 5_000
    """How long messages that could not be sent back wait before they are consumed again here."""
    reset_wait_ms: int = 10_000
    """How long a reset of offsets waits for running listeners."""

    def __post_init__(self) -> None:
        convert_spans(self)
        _check_choices(self.model, self.from_where)
        _within(self.workers, 1, 1_000, "workers")
        _within(self.batch_max, 1, 1_024, "batch_max")
        _within(self.pull_batch_max, 1, 1_024, "pull_batch_max")
        _within(self.pull_bytes_max, 1, 1 << 30, "pull_bytes_max")
        _within(self.pull_interval_ms, 0, 65_535, "pull_interval_ms")
        _within(self.max_reconsume_times, -1, 1 << 31, "max_reconsume_times")
        _within(self.consume_timeout_ms, 1, 1 << 40, "consume_timeout_ms")
        _within(self.hold_ms, 0, self.pull_timeout_ms, "hold_ms")
        for name in ("suspend_ms", "rebalance_interval_ms", "persist_interval_ms", "lock_interval_ms", "retry_ms"):
            _within(getattr(self, name), 1, 1 << 40, name)
        for name in ("shutdown_wait_ms", "resubmit_ms", "reset_wait_ms"):
            _within(getattr(self, name), 0, 1 << 40, name)
        _check_window(self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class PullConfig:
    """How a pull consumer works."""

    model: MessageModel = MessageModel.CLUSTERING
    from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    from_time_ms: int | None = None
    strategy: AllocationStrategy = field(default_factory=Averagely)
    broker_assigns: bool = False
    auto_commit: bool = True
    """Commit returned messages periodically and at close."""
    auto_commit_interval_ms: int = 5_000
    poll_timeout_ms: int = 5_000
    poll_max: int = 1_000
    """Limit of messages that one `poll` returns."""
    pull_batch_max: int = 1_024
    """Messages per pull; brokers other than ours give at most their own limit, usually 32."""
    pull_bytes_max: int = PULL_BYTES_MAX
    """Bytes of records per pull. Brokers before 5.1 ignore it."""
    window: PullWindow = field(default_factory=PullWindow)
    held_max: int = 10_000
    """Limit of messages held of all queues together."""
    offset_dir: Path | None = None
    filters: Sequence[PullFilter] = ()
    rebalance_interval_ms: int = 20_000
    persist_interval_ms: int = 5_000
    hold_ms: int = 20_000
    pull_timeout_ms: int = 30_000
    retry_ms: int = 1_000

    def __post_init__(self) -> None:
        convert_spans(self)
        _check_choices(self.model, self.from_where)
        _within(self.pull_batch_max, 1, 1_024, "pull_batch_max")
        _within(self.pull_bytes_max, 1, 1 << 30, "pull_bytes_max")
        _within(self.poll_max, 1, 1 << 31, "poll_max")
        _within(self.held_max, 1, 1 << 31, "held_max")
        _within(self.auto_commit_interval_ms, 1_000, 1 << 40, "auto_commit_interval_ms")
        _within(self.poll_timeout_ms, 0, 1 << 40, "poll_timeout_ms")
        _within(self.hold_ms, 0, self.pull_timeout_ms, "hold_ms")
        for name in ("rebalance_interval_ms", "persist_interval_ms", "retry_ms"):
            _within(getattr(self, name), 1, 1 << 40, name)
        _check_window(self.window)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    send_timeout_ms: int = 3_000
    """Bounds a whole send: waiting for capacity, route lookup, all attempts."""
    attempts_max: int = 3
    attempt_timeout_ms: int | None = None
    """For each attempt but the last; None: an attempt may use all remaining time."""
    retried_codes: frozenset[int] = RETRIED_CODES
    retry_when_not_stored_ok: bool = False
    """Send a message to another broker too if it was stored without the requested flush or replication."""
    fault_latency: FaultLatencyConfig | None = None
    """Avoid brokers that are slow or failing."""
    body_bytes_max: int = BODY_BYTES_MAX
    compress_from_bytes: int = COMPRESS_FROM_BYTES
    compression: Compression = Compression.ZLIB
    compress_level: int = 5
    new_topic_queues: int = 4
    """Number of queues of a topic that the first send creates, if brokers create topics automatically."""
    template_topic: str = AUTO_CREATE_TOPIC
    batching: Batching | None = field(default_factory=Batching)
    """Let concurrent sends share requests."""
    batch_bytes_max: int = BATCH_BYTES_MAX
    """Of one request of `send_batch`; longer batches are split."""
    in_flight_count_max: int = 10_000
    in_flight_bytes_max: int = 100 << 20
    """Further sends wait for capacity, within their timeout."""
    checks_max: int = 2_000
    """Limit of queued transaction checks; further ones are dropped, and the broker repeats them."""
    checks_at_once: int = 1
    trace: bool = False
    """Send a record of every message to the trace topic."""
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        convert_spans(self)
        for name in (
            "send_timeout_ms",
            "attempts_max",
            "body_bytes_max",
            "compress_from_bytes",
            "new_topic_queues",
            "batch_bytes_max",
            "in_flight_count_max",
            "in_flight_bytes_max",
            "checks_max",
            "checks_at_once",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is at least 1")
        if self.attempt_timeout_ms is not None and self.attempt_timeout_ms < 1:
            raise ConfigError("attempt_timeout_ms is at least 1")

    def encode_options(self) -> EncodeOptions:
        return EncodeOptions(
            body_bytes_max=self.body_bytes_max,
            compress_from_bytes=self.compress_from_bytes,
            compression=self.compression,
            compress_level=self.compress_level,
        )

    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(
            attempts_max=self.attempts_max,
            codes=self.retried_codes,
            when_not_stored_ok=self.retry_when_not_stored_ok,
            attempt_timeout_ms=self.attempt_timeout_ms,
        )


def check_group(group: str) -> None:
    """ConfigError for a name that no group may have."""
    if not isinstance(group, str):
        raise ConfigError(f"a group is text, not {type(group).__name__}")
    if (fault := group_fault(group)) is not None:
        raise ConfigError(fault)
    if group == "DEFAULT_PRODUCER":
        raise ConfigError("group DEFAULT_PRODUCER is reserved: choose another name")
