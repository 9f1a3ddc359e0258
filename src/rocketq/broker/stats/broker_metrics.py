"""What a broker counts for metrics while it works. Pure: times come in as arguments.

Handlers add to it for each request of the slow path. The fast path counts in the kernel, and what it counted is added
here when it is collected: before a handler runs, once a second, and before a scrape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rocketq.broker.stats import families
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, Property, is_system_group, is_system_topic
from rocketq.runtime.metrics import Counters, Distribution, Histograms, Snapshot

NORMAL, FIFO, DELAY, TRANSACTION = "normal", "fifo", "delay", "transaction"
_KERNEL_CODES: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.LITE_PULL_MESSAGE,
)
_OTHER: Final = "other"
_TIMER_PROPERTIES: Final = (
    Property.DELAY,
    Property.TIMER_DELIVER_MS,
    Property.TIMER_DELAY_SECONDS,
    Property.TIMER_DELAY_MS,
    "__STARTDELIVERTIME",
)


def message_type(properties: dict[str, str]) -> str:
    """Apache's type of a message, from its properties."""
    if properties.get(Property.TRANSACTION_PREPARED, "").lower() == "true":
        return TRANSACTION
    if Property.SHARDING_KEY in properties:
        return FIFO
    return DELAY if any(name in properties for name in _TIMER_PROPERTIES) else NORMAL


def truth(value: bool) -> str:
    return "true" if value else "false"


def request_name(code: int) -> str:
    """A request code as label value; unknown ones share one, since clients choose them."""
    return _REQUEST_NAMES.get(code, _OTHER)


def response_name(code: int) -> str:
    return _RESPONSE_NAMES.get(code, _OTHER)


_REQUEST_NAMES: Final = {int(code): code.name.lower() for code in RequestCode}
_RESPONSE_NAMES: Final = {int(code): code.name.lower() for code in ResponseCode}


class BrokerMetrics:
    """Counters and histograms of one broker."""

    def __init__(self) -> None:
        self._messages_in = Counters(families.MESSAGES_IN)
        self._bytes_in = Counters(families.THROUGHPUT_IN)
        self._sizes = Histograms(families.MESSAGE_SIZE)
        self._messages_out = Counters(families.MESSAGES_OUT)
        self._bytes_out = Counters(families.THROUGHPUT_OUT)
        self._dead_letters = Counters(families.SENT_TO_DLQ)
        self._commits = Counters(families.COMMITTED)
        self._rollbacks = Counters(families.ROLLED_BACK)
        self._finish = Histograms(families.FINISH_LATENCY)
        self._finish_seconds = Histograms(families.TRANSACTION_FINISH)
        self._requests = Counters(families.REQUESTS)
        self._latency = Histograms(families.RPC_LATENCY)
        self._topic_creations = Histograms(families.TOPIC_CREATE)
        self._group_creations = Histograms(families.GROUP_CREATE)
        self._refused_sends = Counters(families.REFUSED_SENDS)
        self._kernel_refusals = Counters(families.KERNEL_REFUSALS)
        self._unconsumed = Counters(families.UNCONSUMED_DELETED)
        self._by_name: tuple[Counters | Histograms, ...] = (
            self._messages_in, self._bytes_in, self._sizes, self._messages_out, self._bytes_out, self._dead_letters,
            self._commits, self._rollbacks, self._finish, self._finish_seconds, self._unconsumed,
        )  # fmt: skip
        self._others = (
            self._requests, self._latency, self._topic_creations, self._group_creations, self._refused_sends,
            self._kernel_refusals,
        )  # fmt: skip

    def collect(self, snapshot: Snapshot) -> Iterator[None]:
        for each in (*self._by_name, *self._others):
            yield from each.collect(snapshot)

    # messages

    def stored(self, topic: str, kind: str, count: int, size_bytes: int, sends: int = 1) -> None:
        """Count `count` messages of one type that `sends` requests stored."""
        labels = topic, kind, truth(is_system_topic(topic))
        self._messages_in.add(labels, count)
        self._bytes_in.add(labels, size_bytes)
        if sends and count:
            self._sizes.observe(labels, size_bytes // count, sends)
            if sends == 1:  # the sum is exact for one batch, too
                self._sizes.values[labels].sum += size_bytes - size_bytes // count

    def stored_by_kernel(
        self, topic: str, count: int, size_bytes: int, keyed: tuple[int, int, Sequence[int]], kind: str
    ) -> None:
        """Add what a send grant has counted; `keyed`: what it counted of messages with a sharding key, and the requests
        by size without and with one."""
        keyed_count, keyed_bytes, sizes = keyed
        half = len(sizes) // 2
        system = truth(is_system_topic(topic))
        for one, messages, total, counts in (
            (kind, count - keyed_count, size_bytes - keyed_bytes, sizes[:half]),
            (FIFO if kind == NORMAL else kind, keyed_count, keyed_bytes, sizes[half:]),
        ):
            if messages:
                labels = topic, one, system
                self._messages_in.add(labels, messages)
                self._bytes_in.add(labels, total)
                self._sizes.merge(labels, Distribution(list(counts), total))

    def given(self, topic: str, group: str, count: int, size_bytes: int, *, is_retry: bool | None = None) -> None:
        """Count messages given to a pull, or to a pop (which says whether they are retries)."""
        if not count or (is_retry is None and topic.startswith((RETRY_PREFIX, DLQ_PREFIX))):
            return
        system = truth(is_system_topic(topic) or is_system_group(group))
        labels = topic, group, system, "" if is_retry is None else truth(is_retry)
        self._messages_out.add(labels, count)
        self._bytes_out.add(labels, size_bytes)

    def dead_letter(self, group: str, topic: str) -> None:
        self._dead_letters.add((group, topic, truth(is_system_topic(topic))))

    def transaction_finished(self, topic: str, *, committed: bool, took_ms: int) -> None:
        (self._commits if committed else self._rollbacks).add((topic,))
        took_s = max(0, took_ms) / 1000
        self._finish.observe((topic,), int(took_s))
        self._finish_seconds.observe((topic,), took_s)

    def refused_send(self, cause: str, count: int = 1) -> None:
        self._refused_sends.add((cause,), count)

    def deleted_unconsumed(self, group: str, topic: str, count: int) -> None:
        self._unconsumed.add((group, topic), count)

    # requests

    def answered(self, request: Command, code: int, took_s: float, result: str) -> None:
        """Count an answered request of the slow path."""
        name, took_ms = request_name(request.code), took_s * 1000
        self._requests.add((name, "python"))
        self._latency.observe(("remoting", name, response_name(code), truth(request.is_held), result), took_ms)
        status = "success" if code == ResponseCode.SUCCESS else "failure"
        if request.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
            system = truth(is_system_topic(request.ext_fields.get("topic", "")))
            self._topic_creations.observe((status, system), took_ms)
        elif request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            self._group_creations.observe((status,), took_ms)

    def answered_by_kernel(self, times: Sequence[tuple[Sequence[int], int]]) -> None:
        """Add requests of the fast path: for each of its codes the counts by latency bucket, and nanoseconds."""
        for code, (counts, took_ns) in zip(_KERNEL_CODES, times, strict=True):
            if total := sum(counts):
                name = request_name(code)
                self._requests.add((name, "kernel"), total)
                labels = "remoting", name, "success", "false", "success"
                self._latency.merge(labels, Distribution(list(counts), took_ns / 1e6))

    def answered_after_waiting(self, count: int, took_ms: float) -> None:
        """Count sends of the fast path whose answers waited for the disk or a slave; nearly all are of code 310."""
        name = request_name(RequestCode.SEND_MESSAGE_V2)
        self._requests.add((name, "kernel"), count)
        self._latency.observe(("remoting", name, "success", "false", "success"), took_ms, count)

    def left_to_python(self, reason: str) -> None:
        self._kernel_refusals.add((reason,))

    # the end of a topic or group

    def forget_topic(self, topic: str) -> None:
        for each in self._by_name:
            each.forget("topic", topic)

    def forget_group(self, group: str) -> None:
        for each in self._by_name:
            each.forget("consumer_group", group)
            each.forget("topic", RETRY_PREFIX + group)
