"""How many messages of each topic wait in the wheel, as operators and slaves of 5.x ask for it. Advisory: nothing is
delivered by these numbers, and after a crash they may be off by what happened since they were saved."""

from __future__ import annotations

from rocketq.protocol.bodies.timers import TimerMetrics, WaitingCount


class WaitingCounts:
    """Time comes in as an argument."""

    def __init__(self, saved: TimerMetrics | None = None) -> None:
        saved = saved or TimerMetrics()
        self._counts = {topic: one.count for topic, one in saved.topics.items() if one.count > 0}
        self._changed_ms = {topic: one.changed_ms for topic, one in saved.topics.items() if one.count > 0}
        self._version = saved.data_version
        self._changed = False

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """So many more, or fewer; never fewer than none."""
        self._counts[topic] = max(0, self._counts.get(topic, 0) + count)
        self._changed_ms[topic] = now_ms
        self._changed = True

    def table(self, now_ms: int) -> TimerMetrics:
        """What there is now; under a new version when it changed since it was asked for."""
        if self._changed:
            self._version, self._changed = self._version.next(now_ms), False
        topics = {
            topic: WaitingCount(count=count, changed_ms=self._changed_ms[topic])
            for topic, count in sorted(self._counts.items())
        }
        return TimerMetrics(data_version=self._version, topics=topics)
