"""Counts over the last minute, hour and day, by statistic and key, as operators' tools ask for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from rocketq.protocol.bodies.stats import BrokerStats, StatsWindow

SAMPLE_MS: Final = 10_000
_HOUR_SAMPLE_MS: Final = 600_000
_DAY_SAMPLE_MS: Final = 3_600_000


class Statistic:
    """Names of statistics; the keys are a topic, `topic@group` or the cluster."""

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


class Meter:
    """One counter with samples of its past. It starts from a zero sample, so that its first window is right."""

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
        """Called every ten seconds."""
        sample = _Sample(now_ms, self.value, self.times)
        self._minute.append(sample)
        if now_ms - self._hour[-1].at_ms >= _HOUR_SAMPLE_MS:
            self._hour.append(sample)
        if now_ms - self._day[-1].at_ms >= _DAY_SAMPLE_MS:
            self._day.append(sample)

    def stats(self) -> BrokerStats:
        return BrokerStats(minute=_window(self._minute), hour=_window(self._hour), day=_window(self._day))

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


class Meters:
    """All counters of a broker."""

    def __init__(self, now_ms: int) -> None:
        self._meters: dict[tuple[str, str], Meter] = {}
        self._now_ms = now_ms

    def add(self, statistic: str, key: str, value: int, times: int = 1) -> None:
        meter = self._meters.get((statistic, key))
        if meter is None:
            meter = self._meters[statistic, key] = Meter(self._now_ms)
        meter.add(value, times)

    def get(self, statistic: str, key: str) -> Meter | None:
        return self._meters.get((statistic, key))

    def tps(self, statistic: str, key: str) -> float:
        meter = self._meters.get((statistic, key))
        return 0.0 if meter is None else meter.minute_tps

    def sample(self, now_ms: int) -> Iterator[None]:
        """One counter in each step: there may be some for every queue of every group."""
        self._now_ms = now_ms
        for meter in list(self._meters.values()):
            meter.sample(now_ms)
            yield

    def forget_topic(self, topic: str) -> None:
        prefix = group_key(topic, "")
        self._forget(lambda key: key == topic or key.startswith(prefix))

    def forget_group(self, group: str) -> None:
        suffix = group_key("", group)
        self._forget(lambda key: key.endswith(suffix))

    def _forget(self, doomed: Callable[[str], bool]) -> None:
        for name in [name for name in self._meters if doomed(name[1])]:
            del self._meters[name]
