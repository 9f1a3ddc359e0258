"""Who waits for which reply."""

from __future__ import annotations

import asyncio

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import ClientClosedError


class ReplyWaiters:
    """By correlation id."""

    def __init__(self) -> None:
        self._waiting: dict[str, asyncio.Future[StoredMessage]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def expect(self, correlation_id: str) -> asyncio.Future[StoredMessage]:
        reply = self._waiting[correlation_id] = asyncio.get_running_loop().create_future()
        return reply

    def forget(self, correlation_id: str) -> None:
        self._waiting.pop(correlation_id, None)

    def take(self, correlation_id: str, reply: StoredMessage) -> bool:
        """False for a reply that nobody waits for, or not any more."""
        waiting = self._waiting.pop(correlation_id, None)
        if waiting is None or waiting.done():
            return False
        waiting.set_result(reply)
        return True

    def close(self, what: str) -> None:
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ClientClosedError(what))
        self._waiting.clear()
