"""Values that many bodies are made of."""

from __future__ import annotations

from rocketq.protocol.bodies.json_body import Body, body, member


@body
class MessageQueue(Body):
    """One queue of a topic on one broker; also the key of many tables."""

    topic: str = member("topic")
    broker_name: str = member("brokerName")
    queue_id: int = member("queueId")


@body
class DataVersion(Body):
    """How new a table is: equal versions mean equal tables."""

    counter: int = member("counter", default=0)
    timestamp_ms: int = member("timestamp", default=0)
    state_version: int | None = member("stateVersion", default=None)

    def next(self, now_ms: int) -> DataVersion:
        return DataVersion(counter=self.counter + 1, timestamp_ms=now_ms, state_version=self.state_version)


@body
class KeyValues(Body):
    """A table of texts: runtime figures of a broker, a namespace of the NameServer's config."""

    table: dict[str, str] = member("table", factory=dict)
