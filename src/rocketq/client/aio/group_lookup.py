"""What brokers know of a consumer group."""

from __future__ import annotations

from collections.abc import Set

from rocketq.client.aio.broker_directory import BrokerDirectory
from rocketq.client.aio.queue_positions import QueuePositions
from rocketq.client.aio.scatter import on_each, outcomes
from rocketq.client.aio.session import Session
from rocketq.client.core.routes import masters_of
from rocketq.client.errors import NotFoundError
from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigTable
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.stats import ConsumeStats
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import ConsumerNotOnline
from rocketq.protocol.headers.groups import ConsumerConnectionRequest, ConsumeStatsRequest
from rocketq.protocol.headers.offsets import OffsetResponse, QueryOffsetRequest


class GroupLookup:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)
        self._positions = QueuePositions(session)

    async def configs(self, masters: dict[str, str]) -> dict[str, dict[str, GroupConfig]]:
        """By group, then by broker name."""
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        answers = await on_each({name: self._session.call(addr, None, code=code) for name, addr in masters.items()})
        groups: dict[str, dict[str, GroupConfig]] = {}
        for broker_name, answer in answers.items():
            for group, config in GroupConfigTable.decode(answer.body).groups.items():
                groups.setdefault(group, {})[broker_name] = config
        return dict(sorted(groups.items()))

    async def require(self, group: str) -> None:
        """NotFoundError unless a broker is configured for it, has a member of it, or offsets it committed."""
        masters = await self._directory.masters()
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        tables = await outcomes({name: self._session.call(addr, None, code=code) for name, addr in masters.items()})
        if any(group in GroupConfigTable.decode(answer.body).groups for answer in tables.results.values()):
            return
        request = ConsumeStatsRequest(group=group)
        stats = await outcomes({name: self._session.call(addr, request) for name, addr in masters.items()})
        if any(ConsumeStats.decode(answer.body).queues for answer in stats.results.values()):
            return
        if not await self.online_at(group, masters):  # raises where a broker that might know it does not answer
            raise NotFoundError("consumer group", group)

    async def online(self, group: str, broker_names: Set[str], topic: str) -> dict[str, Command]:
        """Answers of those of a topic's brokers that have members of the group connected, by name."""
        masters = masters_of(await self._session.routes.get(topic))
        return await self.online_at(group, {name: addr for name, addr in masters.items() if name in broker_names})

    async def online_at(self, group: str, masters: dict[str, str]) -> dict[str, Command]:
        request = ConsumerConnectionRequest(group=group)
        found = await outcomes({name: self._session.call(addr, request) for name, addr in masters.items()})
        for error in found.failures.values():
            if not isinstance(error, ConsumerNotOnline):
                raise error
        return found.results

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """None where nothing was. 4.x brokers of Apache say 0 instead while the queue still starts there."""
        request = QueryOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id, zero_if_none=False)
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._session.call(await self._positions.addr(queue), request, accept=accept)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return OffsetResponse.decode(answer.ext_fields).queue_offset
