"""Counters by name and key, with their sums over the last minute, hour and day (request 315)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rocketq.protocol.bodies.stats import StatsData, StatsWindow

SAMPLE_MS: Final = 10_000
_HOUR_SAMPLE_MS: Final = 600_000
_DAY_SAMPLE_MS: Final = 3_600_000


class StatName:
    """Names of stats on the wire; keys are a topic, `topic@group` or the cluster."""

    TOPIC_PUT_COUNT: Final = "TOPIC_PUT_NUMS"
    TOPIC_PUT_BYTES: Final = "TOPIC_PUT_SIZE"
    GROUP_GET_COUNT: Final = "GROUP_GET_NUMS"
    GROUP_GET_BYTES: Final = "GROUP_GET_SIZE"
    SEND_BACK_COUNT: Final = "SNDBCK_PUT_NUMS"
    BROKER_PUT_COUNT: Final = "BROKER_PUT_NUMS"
    BROKER_GET_COUNT: Final = "BROKER_GET_NUMS"


def group_key(topic: str, group: str) -> str:
    return f"{topic}@{group}"


class _Sample(NamedTuple):
    at_ms: int
    value: int
    times: int


class StatsCounter:
    """A counter with samples of its history. The first sample is zero, so that the first window is exact."""

    def __init__(self, now_ms: int) -> None:
        self.value = 0
        self.times = 0
        zero = _Sample(now_ms, 0, 0)
        self._minute = deque((zero,), maxlen=7)
        self._hour = deque((zero,), maxlen=7)
        self._day = deque((zero,), maxlen=25)

    def add(self, value: int, times: int = 1) -> None:
        self.value += value
        self.times += times

    def sample(self, now_ms: int) -> None:
        """Record a sample; called every `SAMPLE_MS`."""
        sample = _Sample(now_ms, self.value, self.times)
        self._minute.append(sample)
        if now_ms - self._hour[-1].at_ms >= _HOUR_SAMPLE_MS:
            self._hour.append(sample)
        if now_ms - self._day[-1].at_ms >= _DAY_SAMPLE_MS:
            self._day.append(sample)

    def stats(self) -> StatsData:
        return StatsData(minute=_window(self._minute), hour=_window(self._hour), day=_window(self._day))

    @property
    def minute_tps(self) -> float:
        return _window(self._minute).tps


def _window(samples: deque[_Sample]) -> StatsWindow:
    first, last = samples[0], samples[-1]
    total, times, span_ms = last.value - first.value, last.times - first.times, last.at_ms - first.at_ms
    return StatsWindow(
        sum=total,
        tps=total * 1000 / span_ms if span_ms > 0 else 0.0,
        average=total / times if times > 0 else 0.0,
    )


class StatsTable:
    """All windowed counters of a broker."""

    def __init__(self, now_ms: int) -> None:
        self._counters: dict[tuple[str, str], StatsCounter] = {}
        self._now_ms = now_ms

    def add(self, name: str, key: str, value: int, times: int = 1) -> None:
        counter = self._counters.get((name, key))
        if counter is None:
            counter = self._counters[name, key] = StatsCounter(self._now_ms)
        counter.add(value, times)

    def get(self, name: str, key: str) -> StatsCounter | None:
        return self._counters.get((name, key))

    def tps(self, name: str, key: str) -> float:
        counter = self._counters.get((name, key))
        return 0.0 if counter is None else counter.minute_tps

    def sample(self, now_ms: int) -> Iterator[None]:
        """Sample all counters, one per step: there may be several for each topic and group."""
        self._now_ms = now_ms
        for counter in list(self._counters.values()):
            counter.sample(now_ms)
            yield

    def forget_topic(self, topic: str) -> None:
        prefix = group_key(topic, "")
        self._remove(lambda key: key == topic or key.startswith(prefix))

    def forget_group(self, group: str) -> None:
        suffix = group_key("", group)
        self._remove(lambda key: key.endswith(suffix))

    def _remove(self, is_removed: Callable[[str], bool]) -> None:
        for entry in [entry for entry in self._counters if is_removed(entry[1])]:
            del self._counters[entry]
