"""Offsets of groups, for operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rocketq.client.admin.groups import GroupLookup
from rocketq.client.core.offsets import OffsetChange, QueueBounds, ResetTo
from rocketq.client.core.routes import queue_order, subscribe_queues
from rocketq.client.errors import GroupOnlineError, NotFoundError
from rocketq.client.fan_out import on_each
from rocketq.client.offsets import QueuePositions
from rocketq.client.session import Session
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Language
from rocketq.protocol.headers import offsets as headers
from rocketq.protocol.versions import V5_0_0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOffset:
    """`committed` is None where the group has committed nothing."""

    queue: MessageQueue
    committed: int | None
    bounds: QueueBounds


class AsyncOffsets:
    """An offset is that of the next message to consume."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._groups = GroupLookup(session)
        self._positions = QueuePositions(session)

    async def get(self, group: str, topic: str) -> tuple[QueueOffset, ...]:
        """Committed offset, first offset and end of each queue of a topic."""
        queues = await self._queues(topic)
        committed = await on_each({queue: self._groups.committed(group, queue) for queue in queues})
        bounds = await on_each({queue: self._positions.bounds(queue) for queue in queues})
        return tuple(QueueOffset(queue=queue, committed=committed[queue], bounds=bounds[queue]) for queue in queues)

    async def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Commit for a group that is not running; members that run would soon commit theirs again."""
        await on_each({queue: self._commit(group, queue, offset) for queue, offset in offsets.items()})

    async def reset(
        self, group: str, topic: str, to: ResetTo, *, queue: tuple[str, int] | None = None, preview: bool = False
    ) -> tuple[OffsetChange, ...]:
        """Reset each queue of the topic (or one, by broker name and queue id); with `preview` nothing is changed.

        The group need not be running. Brokers notify connected members, which drop the messages they hold and restart.
        """
        await self._groups.require(group)
        queues = _pick(await self._queues(topic), topic, queue)
        changes = await on_each({one: self._change(group, one, to) for one in queues})
        plan = tuple(changes[one] for one in queues)
        if not preview:
            online = await self._groups.online(group, {one.broker_name for one in queues}, topic)
            _refuse_unheard(group, to, online, one_queue=queue is not None)
            await self.set(group, {change.queue: change.after for change in plan})
            await self._tell_members(group, to, [one for one in plan if one.queue.broker_name in online], queue)
        return plan

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        route = await self._session.routes.refresh(topic)
        return tuple(sorted(subscribe_queues(topic, route), key=queue_order))

    async def _change(self, group: str, queue: MessageQueue, to: ResetTo) -> OffsetChange:
        before = await self._groups.committed(group, queue)
        bounds, after = await self._positions.resolve(queue, to)
        return OffsetChange(queue=queue, before=before, after=after, bounds=bounds)

    async def _commit(self, group: str, queue: MessageQueue, offset: int) -> None:
        request = headers.UpdateOffsetRequest(
            group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset
        )
        await self._session.call(await self._positions.addr(queue), request)

    async def _tell_members(
        self, group: str, to: ResetTo, plan: list[OffsetChange], queue: tuple[str, int] | None
    ) -> None:
        """By time once per broker, which works it out itself; to an offset, or one queue, queue by queue."""
        by_queue = queue is not None or to.timestamp_ms is None
        told = plan if by_queue else {one.queue.broker_name: one for one in plan}.values()
        await on_each({one.queue: self._notify(group, to, one, by_queue=by_queue) for one in told})

    async def _notify(self, group: str, to: ResetTo, change: OffsetChange, *, by_queue: bool) -> None:
        request = headers.ResetOffsetRequest(
            topic=change.queue.topic,
            group=group,
            timestamp_ms=0 if to.timestamp_ms is None else to.timestamp_ms,
            force=True,
            queue_id=change.queue.queue_id if by_queue else None,
            queue_offset=change.after if by_queue else None,
        )
        await self._session.call(await self._positions.addr(change.queue), request)


def _pick(queues: tuple[MessageQueue, ...], topic: str, wanted: tuple[str, int] | None) -> tuple[MessageQueue, ...]:
    if wanted is None:
        return queues
    found = tuple(queue for queue in queues if (queue.broker_name, queue.queue_id) == wanted)
    if not found:
        raise NotFoundError("queue", f"{wanted[0]}:{wanted[1]} of {topic}")
    return found


def _refuse_unheard(group: str, to: ResetTo, online: Mapping[str, Command], *, one_queue: bool) -> None:
    """Apache's 4.x brokers only reset by time and would misread a reset to an offset."""
    for broker_name, answer in online.items():
        knows_offsets = answer.version >= V5_0_0 or answer.language is Language.PYTHON
        if not knows_offsets and (one_queue or to.timestamp_ms is None):
            raise GroupOnlineError(group, broker_name)
