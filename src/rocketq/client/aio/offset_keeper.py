"""Offsets a consumer has reached, saved now and then and when a queue is given away."""

from __future__ import annotations

import logging
from collections.abc import Collection

from rocketq.client.aio.offset_store import OffsetStore, RemoteOffsets
from rocketq.client.aio.queue_positions import QueuePositions
from rocketq.client.core.offset_start import StartRule, start_rule
from rocketq.client.core.offset_table import OffsetTable
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeFromWhere

log = logging.getLogger(__name__)


class OffsetKeeper:
    """Between a consumer and its store."""

    def __init__(
        self,
        store: OffsetStore,
        positions: QueuePositions,
        group: str,
        *,
        from_where: ConsumeFromWhere,
        from_time_ms: int,
    ) -> None:
        self.table = OffsetTable()
        self.goes_with_pulls = isinstance(store, RemoteOffsets)
        """Whether brokers may take offsets from pulls too."""
        self._store = store
        self._positions = positions
        self._group = group
        self._from_where = from_where
        self._from_time_ms = from_time_ms

    async def start_of(self, queue: MessageQueue) -> int:
        """Where to begin with a queue that was just given to us."""
        committed = await self.load(queue)
        if committed is not None:
            return committed
        match start_rule(self._from_where, queue.topic):
            case StartRule.END:
                return (await self._positions.bounds(queue)).max_offset
            case StartRule.TIME:
                return await self._positions.at_time(queue, self._from_time_ms)
        return 0

    async def load(self, queue: MessageQueue) -> int | None:
        """What the store has; a RocketQError when it cannot tell."""
        offset = await self._store.load(self._group, queue)
        if offset is None or offset < 0:
            self.table.forget(queue)
            return None
        self.table.learn(queue, offset)
        return offset

    async def peek(self, queue: MessageQueue) -> int | None:
        """What the store has, for somebody who only wants to know."""
        return await self._store.load(self._group, queue)

    async def save(self, queues: Collection[MessageQueue] | None = None) -> bool:
        """What changed, of these queues or of all; False when some could not be saved and stay for the next time."""
        changed = self.table.unsaved(queues)
        if not changed:
            return True
        try:
            await self._store.save(self._group, changed)
        except RocketQError as error:
            log.warning("group %s: offsets were not saved: %s", self._group, error)
            return False
        except Exception:  # a user's own store must not end the consumer
            log.exception("group %s: the offset store failed", self._group)
            return False
        for queue, offset in changed.items():
            self.table.saved(queue, offset)
        return True

    async def set(self, queue: MessageQueue, offset: int) -> None:
        """Somebody decided: also lower than before, and saved at once."""
        self.table.update(queue, offset)
        await self.save([queue])

    async def give_away(self, queue: MessageQueue) -> None:
        await self.save([queue])
        self.table.forget(queue)
