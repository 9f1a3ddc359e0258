"""What a pull consumer holds of one queue, and how far it was handed out.

    committed <= settled <= position <= messages held <= pull_offset

`position` is behind the last message handed out. `settled` follows it when the caller comes back for more, since only
then is it known that the messages before were dealt with.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.protocol.bodies.queues import MessageQueue


class PulledQueue:
    """Not begun until an offset is set."""

    def __init__(self, queue: MessageQueue, now_ms: int) -> None:
        self.queue = queue
        self.dropped = False
        self.paused = False
        self.pull_offset: int | None = None
        self.position: int | None = None
        self.settled: int | None = None
        self.bytes = 0
        self.last_pull_ms = now_ms
        self.seeks = 0
        """Pulls begun before the last seek do not count."""
        self._messages: deque[StoredMessage] = deque()

    @property
    def count(self) -> int:
        return len(self._messages)

    @property
    def span(self) -> int:
        return self._messages[-1].queue_offset - self._messages[0].queue_offset if self._messages else 0

    def seek(self, offset: int) -> None:
        """Go on here; what is held is forgotten."""
        self._messages.clear()
        self.bytes = 0
        self.pull_offset = self.position = self.settled = offset
        self.seeks += 1

    def put(self, messages: Sequence[StoredMessage], next_offset: int, seeks: int) -> bool:
        """The answer to a pull; False when a seek came in between."""
        if seeks != self.seeks or self.dropped:
            return False
        self._messages.extend(messages)
        self.bytes += sum(message.body_bytes for message in messages)
        self.pull_offset = next_offset
        if not self._messages:
            if self.settled == self.position:
                self.settled = next_offset  # nothing in between was for us
            self.position = next_offset
        return True

    def take(self, count_max: int) -> list[StoredMessage]:
        """Hand out; `position` is behind the last of them."""
        if self.paused or self.dropped:
            return []
        taken = [self._messages.popleft() for _ in range(min(count_max, len(self._messages)))]
        if taken:
            self.bytes -= sum(message.body_bytes for message in taken)
            self.position = taken[-1].queue_offset + 1
        return taken

    def give_back(self, messages: Sequence[StoredMessage]) -> None:
        """The last messages handed out were not looked at: they are handed out again, unless a seek came between."""
        if messages and messages[-1].queue_offset + 1 == self.position:
            self._messages.extendleft(reversed(messages))
            self.bytes += sum(message.body_bytes for message in messages)
            self.position = messages[0].queue_offset

    def settle(self) -> None:
        """Whatever was handed out is dealt with."""
        self.settled = self.position

    @property
    def ready(self) -> bool:
        return bool(self._messages) and not self.paused and not self.dropped
