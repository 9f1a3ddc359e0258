"""Queues and addresses from a topic's route, and which queue the next message goes to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocketq.client.errors import NoQueueError
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import QueueData, TopicRoute
from rocketq.protocol.flags import Perm

MASTER_ID: Final = 0


def queue_order(queue: MessageQueue) -> tuple[str, str, int]:
    """How queues are sorted wherever they are listed."""
    return queue.topic, queue.broker_name, queue.queue_id


def publish_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Writable queues: those of the ordered-topic config, else all that have a master."""
    if route.order_config:
        return tuple(_queues(topic, parse_order(route.order_config)))
    masters = {broker.broker_name for broker in route.brokers if MASTER_ID in broker.addrs}
    usable = (data for data in _sorted(route) if data.perm & Perm.WRITE and data.broker_name in masters)
    return tuple(_queues(topic, ((data.broker_name, data.write_queue_count) for data in usable)))


def subscribe_queues(topic: str, route: TopicRoute) -> tuple[MessageQueue, ...]:
    """Every readable queue; a slave is enough to read."""
    readable = (data for data in _sorted(route) if data.perm & Perm.READ)
    return tuple(_queues(topic, ((data.broker_name, data.read_queue_count) for data in readable)))


def parse_order(order_config: str) -> tuple[tuple[str, int], ...]:
    """Parses `broker:queues;broker:queues`, keeping the order; malformed entries are ignored."""
    found = []
    for entry in order_config.split(";"):
        name, _, count = entry.strip().rpartition(":")
        if name and count.isascii() and count.isdigit():
            found.append((name, int(count)))
    return tuple(found)


def format_order(counts: Iterable[tuple[str, int]]) -> str:
    return ";".join(f"{name}:{count}" for name, count in counts)


def from_template(template: TopicRoute, queue_count: int) -> TopicRoute:
    """The route of a topic that a send creates, derived from the template topic's route."""
    queues = (
        replace(data, read_queue_count=count, write_queue_count=count)
        for data in template.queues
        for count in [min(queue_count, data.read_queue_count)]
    )
    return replace(template, queues=tuple(queues), order_config=None)


def broker_addr(route: TopicRoute, broker_name: str, broker_id: int = MASTER_ID) -> str | None:
    """The address of this broker id, or of any replica with this name if that id is missing."""
    addrs = next((broker.addrs for broker in route.brokers if broker.broker_name == broker_name), {})
    return addrs.get(broker_id) or next((addr for _, addr in sorted(addrs.items())), None)


def master_addr(route: TopicRoute, queue: MessageQueue) -> str:
    """The address to write to; NoQueueError if the broker has no master."""
    addrs = next((broker.addrs for broker in route.brokers if broker.broker_name == queue.broker_name), {})
    if MASTER_ID not in addrs:
        raise NoQueueError(queue.topic, f"broker {queue.broker_name} has no master in the route")
    return addrs[MASTER_ID]


def masters_of(route: TopicRoute) -> dict[str, str]:
    """One address per broker name: the master, or another replica if there is no master."""
    found = ((broker.broker_name, broker_addr(route, broker.broker_name)) for broker in route.brokers)
    return {name: addr for name, addr in sorted(found) if addr is not None}


def _sorted(route: TopicRoute) -> list[QueueData]:
    return sorted(route.queues, key=lambda data: data.broker_name)


def _queues(topic: str, counts: Iterable[tuple[str, int]]) -> Iterable[MessageQueue]:
    for name, count in counts:
        yield from (MessageQueue(topic=topic, broker_name=name, queue_id=queue_id) for queue_id in range(count))


def java_hash(value: str | int) -> int:
    """`hashCode()` of a String, of an Integer or, of what needs more than 32 bits, of a Long."""
    if isinstance(value, str):
        return _of_text(value)
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError(f"no 64-bit number: {value}")
    if -(1 << 31) <= value < 1 << 31:
        return value
    bits = value & 0xFFFFFFFFFFFFFFFF
    return _signed((bits ^ bits >> 32) & 0xFFFFFFFF)


def hash_index(value: str | int, count: int) -> int:
    """Which of `count` a key goes to; the one hash without an absolute value goes to the first."""
    code = java_hash(value)
    return 0 if code == -(1 << 31) else abs(code) % count


def _of_text(text: str) -> int:
    code = 0
    if text.isascii():
        for unit in text.encode():
            code = (31 * code + unit) & 0xFFFFFFFF
        return _signed(code)
    units = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return _signed(code)


def _signed(code: int) -> int:
    return code - (1 << 32) if code >= 1 << 31 else code


LATENCIES_MS: Final = (50, 100, 550, 1_800, 3_000, 5_000, 15_000)
ABSENCES_MS: Final = (0, 0, 2_000, 5_000, 6_000, 10_000, 30_000)
ISOLATION_MS: Final = 10_000
"""A failure counts as an answer that took so long."""
PROBE_TIMEOUT_MS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultLatencyConfig:
    """A broker that took `latencies_ms[i]` or longer is avoided for `absences_ms[i]`; defaults are those of 5.x."""

    latencies_ms: tuple[int, ...] = LATENCIES_MS
    absences_ms: tuple[int, ...] = ABSENCES_MS
    isolation_ms: int = ISOLATION_MS
    probe_interval_ms: int | None = None
    """How often an unreachable broker is probed; None: no probes, the next send shows it."""
    probe_timeout_ms: int = PROBE_TIMEOUT_MS

    def __post_init__(self) -> None:
        if not self.latencies_ms or len(self.latencies_ms) != len(self.absences_ms):
            raise ConfigError("latencies_ms and absences_ms are equally long and not empty")
        if list(self.latencies_ms) != sorted(self.latencies_ms):
            raise ConfigError("latencies_ms grow")
        if self.probe_timeout_ms < 1 or (self.probe_interval_ms is not None and self.probe_interval_ms < 1):
            raise ConfigError("probe_interval_ms and probe_timeout_ms are at least 1")

    def absence_ms(self, latency_ms: int) -> int:
        absence_ms = 0
        for threshold_ms, span_ms in zip(self.latencies_ms, self.absences_ms, strict=True):
            if latency_ms >= threshold_ms:
                absence_ms = span_ms
        return absence_ms


@dataclass(frozen=True, slots=True)
class Fault:
    """The result of the last attempt on a broker."""

    latency_ms: int
    back_ms: int
    reachable: bool


class FaultLatency:
    """Faults of brokers by name. A broker without a record is available and reachable."""

    def __init__(self, config: FaultLatencyConfig | None = None) -> None:
        self.config = config or FaultLatencyConfig()
        self._faults: dict[str, Fault] = {}

    def record(
        self, broker_name: str, latency_ms: int, now_ms: int, *, isolated: bool = False, reachable: bool = True
    ) -> None:
        """An attempt ended after `latency_ms`; `isolated` because it failed."""
        absence_ms = self.config.absence_ms(self.config.isolation_ms if isolated else latency_ms)
        self._faults[broker_name] = Fault(latency_ms, now_ms + absence_ms, reachable)

    def is_available(self, broker_name: str, now_ms: int) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or now_ms >= fault.back_ms

    def is_reachable(self, broker_name: str) -> bool:
        fault = self._faults.get(broker_name)
        return fault is None or fault.reachable

    def unreachable(self) -> list[str]:
        return [name for name, fault in self._faults.items() if not fault.reachable]

    def reached(self, broker_name: str) -> None:
        """The broker answers again; how long it is avoided does not change."""
        fault = self._faults.get(broker_name)
        if fault is not None:
            self._faults[broker_name] = Fault(fault.latency_ms, fault.back_ms, True)

    def keep_only(self, broker_names: Collection[str]) -> None:
        """Forget brokers that have left all routes."""
        self._faults = {name: fault for name, fault in self._faults.items() if name in broker_names}

    def known(self) -> dict[str, Fault]:
        return dict(self._faults)


class RoundRobin:
    """Round robin over the queues of each topic; after a failure, a queue of another broker if there is one.

    With `faults`, prefers brokers that are available, then those that are reachable, then any.
    """

    def __init__(self, start: int = 0, faults: FaultLatency | None = None) -> None:
        self._start = start
        self._faults = faults
        self._next: dict[str, int] = {}

    def choose(self, queues: Sequence[MessageQueue], failed_broker: str | None = None, now_ms: int = 0) -> MessageQueue:
        """`queues` are of one topic and not empty."""
        topic = queues[0].topic
        at = self._next.get(topic, self._start)
        self._next[topic] = at + 1
        faults = self._faults
        if faults is None:
            if failed_broker is None:
                return queues[at % len(queues)]
            return _first(queues, at, failed_broker, _any_broker) or queues[at % len(queues)]
        return (
            _first(queues, at, failed_broker, lambda name: faults.is_available(name, now_ms))
            or _first(queues, at, failed_broker, faults.is_reachable)
            or queues[at % len(queues)]
        )


def _first(
    queues: Sequence[MessageQueue], at: int, failed_broker: str | None, fits: Callable[[str], bool]
) -> MessageQueue | None:
    for step in range(len(queues)):
        queue = queues[(at + step) % len(queues)]
        if queue.broker_name != failed_broker and fits(queue.broker_name):
            return queue
    return None


def _any_broker(broker_name: str) -> bool:
    return True
