"""How many messages wait for their time."""

from __future__ import annotations

from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import DataVersion


@body
class WaitingCount(Body):
    count: int = member("count", default=0)
    changed_ms: int = member("timeStamp", default=0)


@body
class TimerMetrics(Body):
    """By topic: an answer, and the file timermetrics."""

    data_version: DataVersion = member("dataVersion", factory=DataVersion)
    topics: dict[str, WaitingCount] = member("timingCount", factory=dict)
