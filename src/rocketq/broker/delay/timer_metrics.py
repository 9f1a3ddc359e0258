"""How many messages of each topic wait in the wheel, as operators and slaves of 5.x ask for it. Advisory: nothing is
delivered by these numbers, and after a crash they may be off by what happened since they were saved."""

from __future__ import annotations

from rocketq.protocol.bodies.stats import TimerMetrics, WaitingCount


class WaitingCounts:
    """Time comes in as an argument."""

    def __init__(self, saved: TimerMetrics | None = None) -> None:
        saved = saved or TimerMetrics()
        self._topics = {topic: one for topic, one in saved.topics.items() if one.count > 0}
        self._version = saved.data_version
        self._changed = False

    def add(self, topic: str, count: int, now_ms: int) -> None:
        """So many more, or fewer; never fewer than none."""
        known = self._topics.get(topic)
        waiting = max(0, (0 if known is None else known.count) + count)
        self._topics[topic] = WaitingCount(count=waiting, changed_ms=now_ms)
        self._changed = True

    def table(self, now_ms: int) -> TimerMetrics:
        """What there is now; under a new version when it changed since it was asked for."""
        if self._changed:
            self._version, self._changed = self._version.next(now_ms), False
        return TimerMetrics(data_version=self._version, topics=dict(sorted(self._topics.items())))
