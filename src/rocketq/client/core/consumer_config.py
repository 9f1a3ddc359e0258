"""Settings of consumers, checked when they are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rocketq.client.core.allocation import AllocationStrategy, Averagely
from rocketq.client.core.consume_hooks import ConsumeHook, PullFilter
from rocketq.client.core.pull_window import PullWindow
from rocketq.errors import ConfigError
from rocketq.protocol.flags import ConsumeFromWhere, MessageModel
from rocketq.protocol.names import TRACE_TOPIC


def _within(value: int, low: int, high: int, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name} is a whole number from {low} to {high}, not {value!r}")


def _check_choices(model: MessageModel, from_where: ConsumeFromWhere) -> None:
    """A text would be taken for something else without a word."""
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
    """How a push consumer works; what is not said is as in Apache's clients."""

    orderly: bool = False
    """One message after the other per queue, under a lock of the broker."""
    model: MessageModel = MessageModel.CLUSTERING
    """CLUSTERING shares the queues among the members, BROADCASTING gives every member all of them."""
    from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    """Where a group starts that never committed anything."""
    from_time_ms: int | None = None
    """For CONSUME_FROM_TIMESTAMP; None is half an hour before the start."""
    strategy: AllocationStrategy = field(default_factory=Averagely)
    broker_assigns: bool = False
    """Ask brokers for the share. A topic whose first question is refused is shared by the members themselves."""
    workers: int = 20
    """Calls of the listener at the same time: threads for a plain function, tasks for an asynchronous one."""
    on_loop: bool = False
    """Call a plain function on the event loop itself: the fastest way, for listeners that never block."""
    batch_max: int = 1
    """Messages per call."""
    pull_batch_max: int = 32
    pull_interval_ms: int = 0
    window: PullWindow = field(default_factory=PullWindow)
    max_reconsume_times: int = -1
    """Deliveries after the first before a message is dead; -1 is 16, in order without end."""
    suspend_ms: int = 1_000
    """In order: how long a queue waits after a failure."""
    consume_timeout_ms: int = 15 * 60_000
    """A message its listener has for longer is sent back, so that it does not hold up the others."""
    shutdown_wait_ms: int = 10_000
    """How long closing waits for listeners under way."""
    offset_dir: Path | None = None
    """BROADCASTING: where offsets are kept, in `<offset_dir>/<group>/offsets.json`. None keeps them in memory."""
    hooks: Sequence[ConsumeHook] = ()
    filters: Sequence[PullFilter] = ()
    trace: bool = False
    """Tell the trace topic of every call of the listener."""
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
    """After which messages that could not be sent back are consumed again here."""
    reset_wait_ms: int = 10_000
    """How long a reset of offsets waits for listeners under way."""

    def __post_init__(self) -> None:
        _check_choices(self.model, self.from_where)
        _within(self.workers, 1, 1_000, "workers")
        _within(self.batch_max, 1, 1_024, "batch_max")
        _within(self.pull_batch_max, 1, 1_024, "pull_batch_max")
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
    """Whether what `poll` and iteration handed out before is committed now and then, and at the end."""
    auto_commit_interval_ms: int = 5_000
    poll_timeout_ms: int = 5_000
    poll_max: int = 1_000
    """Messages that one `poll` hands out at most."""
    pull_batch_max: int = 32
    window: PullWindow = field(default_factory=PullWindow)
    held_max: int = 10_000
    """Messages held of all queues together."""
    offset_dir: Path | None = None
    filters: Sequence[PullFilter] = ()
    rebalance_interval_ms: int = 20_000
    persist_interval_ms: int = 5_000
    hold_ms: int = 20_000
    pull_timeout_ms: int = 30_000
    retry_ms: int = 1_000

    def __post_init__(self) -> None:
        _check_choices(self.model, self.from_where)
        _within(self.pull_batch_max, 1, 1_024, "pull_batch_max")
        _within(self.poll_max, 1, 1 << 31, "poll_max")
        _within(self.held_max, 1, 1 << 31, "held_max")
        _within(self.auto_commit_interval_ms, 1_000, 1 << 40, "auto_commit_interval_ms")
        _within(self.poll_timeout_ms, 0, 1 << 40, "poll_timeout_ms")
        _within(self.hold_ms, 0, self.pull_timeout_ms, "hold_ms")
        for name in ("rebalance_interval_ms", "persist_interval_ms", "retry_ms"):
            _within(getattr(self, name), 1, 1 << 40, name)
        _check_window(self.window)
