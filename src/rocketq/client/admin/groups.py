"""Consumer groups, for operators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import TypedDict, Unpack

from rocketq.client.admin.brokers import BrokerDirectory
from rocketq.client.core.routes import masters_of, queue_order, subscribe_queues
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import Outcomes, on_each, outcomes
from rocketq.client.offsets import QueuePositions
from rocketq.client.session import Session
from rocketq.errors import ConfigError, RocketQError
from rocketq.model.lag import Lag, UnknownLag, queue_lag
from rocketq.protocol.bodies.clients import (
    Connection,
    ConsumeDirectlyResult,
    ConsumerConnections,
    ProducerConnections,
    RunningConsumer,
    Subscription,
)
from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigTable
from rocketq.protocol.bodies.offsets import TimeSpan, TimeSpans
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.stats import ConsumeStats, QueueProgress
from rocketq.protocol.bodies.topics import QueueRange, TopicStats
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import ConsumerNotOnlineError, InternalBrokerError, TopicNotFoundError
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeType, MessageModel
from rocketq.protocol.headers import groups as membership
from rocketq.protocol.headers.groups import ConsumerConnectionRequest, ConsumeStatsRequest, DeleteGroupRequest
from rocketq.protocol.headers.nameserver import ForgetTopicRequest
from rocketq.protocol.headers.offsets import OffsetResponse, QueryOffsetRequest
from rocketq.protocol.headers.topics import ConsumeTimeSpanRequest, DeleteTopicRequest, TopicStatsRequest
from rocketq.protocol.headers.wire import Header
from rocketq.protocol.names import dlq_topic, group_fault, retry_topic


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLag:
    """One queue for one group. `committed` is the next to be consumed; `last_ms` when the last consumed was stored."""

    queue: MessageQueue
    committed: int | None
    max_offset: int | None
    min_offset: int | None = None
    last_ms: int | None = None

    @property
    def lag(self) -> int | None:
        """Messages stored and not committed; None when that is unknown (`unknown` has the reason)."""
        return self._rule.messages

    @property
    def unknown(self) -> UnknownLag | None:
        """Why the lag is unknown; None when it is known."""
        return self._rule.reason

    @property
    def _rule(self) -> Lag:
        return queue_lag(self.committed, self.min_offset, self.max_offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """The state of a group; `unreachable` has the error of each broker that did not answer."""

    group: str
    members: tuple[Connection, ...] = ()
    consume_type: ConsumeType | None = None
    model: MessageModel | None = None
    from_where: ConsumeFromWhere | None = None
    subscriptions: Mapping[str, Subscription]
    conflicts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By topic, the differing subscriptions of the members that brokers report."""
    queues: tuple[QueueLag, ...] = ()
    consume_tps: float = 0.0
    unreachable: Mapping[str, str]

    @property
    def online(self) -> bool:
        return bool(self.members)

    @property
    def lag(self) -> int | None:
        """Of all queues together; None as long as one of them is not known."""
        lags = [queue.lag for queue in self.queues]
        known = [lag for lag in lags if lag is not None]
        return sum(known) if len(known) == len(lags) and not self.unreachable else None

    @property
    def lag_known(self) -> int:
        """Of those queues that are known."""
        return sum(queue.lag for queue in self.queues if queue.lag is not None)


def queue_lags(
    progress: Mapping[MessageQueue, QueueProgress],
    never_committed: Set[MessageQueue],
    ranges: Mapping[MessageQueue, QueueRange | None],
) -> tuple[QueueLag, ...]:
    """Lag of queues that brokers reported progress for, and of other queues of the topics: never committed. A range is
    None where the broker did not answer."""
    reported = (
        QueueLag(
            queue=queue,
            committed=None if queue in never_committed else found.consumer_offset,
            max_offset=found.broker_offset,
            min_offset=_min_offset(ranges.get(queue)),
            last_ms=found.last_ms or None,
        )
        for queue, found in progress.items()
    )
    others = (
        QueueLag(
            queue=queue,
            committed=None,
            max_offset=found.max_offset if found is not None else None,
            min_offset=_min_offset(found),
        )
        for queue, found in ranges.items()
        if queue not in progress
    )
    return tuple(sorted((*reported, *others), key=lambda lag: queue_order(lag.queue)))


def _min_offset(found: QueueRange | None) -> int | None:
    return None if found is None else found.min_offset


def merge_connections(parts: Iterable[ConsumerConnections]) -> ConsumerConnections | None:
    """Merges the answers of several brokers, counting each member once. None if no member is connected."""
    found = list(parts)
    if not found:
        return None
    members = {member.client_id: member for part in found for member in part.connections}
    subscriptions = {topic: one for part in found for topic, one in part.subscriptions.items()}
    return ConsumerConnections(
        connections=tuple(members[client_id] for client_id in sorted(members)),
        consume_type=found[0].consume_type,
        model=found[0].model,
        from_where=found[0].from_where,
        subscriptions=dict(sorted(subscriptions.items())),
        conflicts={topic: kinds for part in found for topic, kinds in (part.conflicts or {}).items()} or None,
    )


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
            if not isinstance(error, ConsumerNotOnlineError):
                raise error
        return found.results

    async def committed(self, group: str, queue: MessageQueue) -> int | None:
        """None if nothing was committed. Apache's 4.x brokers answer 0 instead while the queue still starts at 0."""
        request = QueryOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id, zero_if_none=False)
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        answer = await self._session.call(await self._positions.addr(queue), request, accept=accept)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return OffsetResponse.decode(answer.ext_fields).queue_offset


RUNNING_INFO_FACTOR = 3
"""A broker asks the member in turn, which takes longer than other requests."""


class GroupChanges(TypedDict, total=False):
    """What can be set of a group; what is left out stays as it is."""

    consume_enable: bool
    consume_from_min_enable: bool
    consume_broadcast_enable: bool
    retry_queue_count: int
    retry_max: int
    broker_id: int
    slow_consumer_broker_id: int
    notify_changes: bool


class AsyncGroups:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)
        self._lookup = GroupLookup(session)
        self._positions = QueuePositions(session)

    async def list(self) -> dict[str, dict[str, GroupConfig]]:
        """Every configured group, and its settings by broker name."""
        return await self._lookup.configs(await self._directory.masters())

    async def set(
        self,
        group: str,
        *,
        cluster: str | None = None,
        broker: str | None = None,
        strict: bool | None = None,
        **changes: Unpack[GroupChanges],
    ) -> dict[str, GroupConfig]:
        """Create or change a group on every master, on those of a cluster, or on one broker; returns the result. A
        strict group refuses members that want something else than the others."""
        if (fault := group_fault(group)) is not None:
            raise ConfigError(fault)
        masters = await self._directory.masters(cluster, broker)
        known = (await self._lookup.configs(masters)).get(group, {})
        wanted = {name: replace(known.get(name, GroupConfig(group=group)), **changes) for name in masters}
        if strict is not None:
            wanted = {name: config.with_strict(strict) for name, config in wanted.items()}
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        calls = {
            name: self._session.call(addr, None, code=code, body=wanted[name].encode())
            for name, addr in masters.items()
        }
        await on_each(calls)
        return wanted

    async def delete(
        self, group: str, *, cluster: str | None = None, keep_offsets: bool = False, dead_letters: bool = False
    ) -> tuple[str, ...]:
        """From its brokers, with its retry topic; dead letters stay unless they are to go too. Names the brokers."""
        masters = await self._directory.masters(cluster)
        configured = (await self._lookup.configs(masters)).get(group, {})
        if not configured:
            raise NotFoundError("consumer group", group)
        request = DeleteGroupRequest(group=group, clean_offset=not keep_offsets)
        extra = {"removeOffset": "false" if keep_offsets else "true"}  # as 4.9 spells it
        addrs = {name: masters[name] for name in configured}
        await on_each({name: self._session.call(addr, request, extra=extra) for name, addr in addrs.items()})
        for topic in (retry_topic(group), *([dlq_topic(group)] if dead_letters else [])):
            drop = DeleteTopicRequest(topic=topic)
            await on_each({name: self._session.call(addr, drop) for name, addr in addrs.items()})
            await self._session.call_all_name_servers(ForgetTopicRequest(topic=topic, cluster=cluster))
        return tuple(addrs)

    async def status(self, group: str) -> GroupStatus:
        """Members, subscriptions and lag per queue. Brokers that do not answer are named, their queues unknown."""
        masters = await self._directory.masters()
        online = await self._on_masters(masters, membership.ConsumerConnectionRequest(group=group))
        stats = await self._on_masters(masters, ConsumeStatsRequest(group=group))
        unreachable = _unreachable(online) | _unreachable(stats)
        if len(unreachable) == len(masters):
            raise next(iter(stats.failures.values()))
        connections = merge_connections(ConsumerConnections.decode(answer.body) for answer in online.results.values())
        parts = [ConsumeStats.decode(answer.body) for answer in stats.results.values()]
        progress = {queue: found for part in parts for queue, found in part.queues.items()}
        if connections is None and not progress:
            await self._lookup.require(group)
        connections = connections or ConsumerConnections()
        topics = {*connections.subscriptions, *(queue.topic for queue in progress)}
        return GroupStatus(
            group=group,
            members=connections.connections,
            consume_type=connections.consume_type,
            model=connections.model,
            from_where=connections.from_where,
            subscriptions=connections.subscriptions,
            conflicts=connections.conflicts or {},
            queues=queue_lags(
                progress,
                await self._never_committed(group, progress),
                await self._ranges(topics, {name: masters[name] for name in masters if name not in unreachable}),
            ),
            consume_tps=sum(part.consume_tps for part in parts),
            unreachable={name: str(error) for name, error in unreachable.items()},
        )

    async def connections(self, group: str) -> ConsumerConnections:
        """Connected members and their subscriptions; ConsumerNotOnlineError if there are none."""
        masters = await self._directory.masters()
        found = await self._on_masters(masters, membership.ConsumerConnectionRequest(group=group))
        merged = merge_connections(ConsumerConnections.decode(answer.body) for answer in found.results.values())
        if merged is None:
            raise next(iter((_unreachable(found) or found.failures).values()))
        return merged

    async def producer_connections(self, group: str) -> tuple[Connection, ...]:
        """Connected producers of a producer group."""
        masters = await self._directory.masters()
        found = await self._on_masters(masters, membership.ProducerConnectionRequest(group=group))
        if not found.results:
            error = next(iter(found.failures.values()))
            raise NotFoundError("producer group", group) if isinstance(error, InternalBrokerError) else error
        parts = (ProducerConnections.decode(answer.body) for answer in found.results.values())
        return tuple({member.client_id: member for part in parts for member in part.connections}.values())

    async def running(self, group: str, client_id: str, *, with_stacks: bool = False) -> RunningConsumer:
        """The running report of a connected member; `with_stacks` adds the stacks of its threads."""
        request = membership.RunningInfoRequest(group=group, client_id=client_id, with_stacks=with_stacks)
        masters = await self._lookup.online_at(group, await self._directory.masters())
        if not masters:
            raise NotFoundError("member", client_id, f"nobody of {group} is connected")
        addr = await self._directory.addr(next(iter(masters)))
        timeout_ms = RUNNING_INFO_FACTOR * self._session.config.control_timeout_ms
        return RunningConsumer.decode((await self._session.call(addr, request, timeout_ms=timeout_ms)).body)

    async def consume_directly(self, group: str, client_id: str, message_id: str, broker: str) -> ConsumeDirectlyResult:
        """Let one member consume one stored message now, outside of its queues; `message_id` is the offset id."""
        request = membership.ConsumeDirectlyRequest(
            group=group, client_id=client_id, message_id=message_id, broker_name=broker
        )
        addr = await self._directory.addr(broker)
        timeout_ms = RUNNING_INFO_FACTOR * self._session.config.control_timeout_ms
        return ConsumeDirectlyResult.decode((await self._session.call(addr, request, timeout_ms=timeout_ms)).body)

    async def time_spans(self, group: str, topic: str) -> tuple[TimeSpan, ...]:
        """Store times of the first, the last and the next message to consume of each queue."""
        masters = masters_of(await self._session.routes.refresh(topic))
        request = ConsumeTimeSpanRequest(topic=topic, group=group)
        answers = await on_each({name: self._session.call(addr, request) for name, addr in masters.items()})
        spans = [span for answer in answers.values() for span in TimeSpans.decode(answer.body).spans]
        return tuple(sorted(spans, key=lambda span: queue_order(span.queue)))

    async def _on_masters(self, masters: Mapping[str, str], request: Header) -> Outcomes[str, Command]:
        return await outcomes({name: self._session.call(addr, request) for name, addr in masters.items()})

    async def _never_committed(
        self, group: str, progress: Mapping[MessageQueue, QueueProgress]
    ) -> frozenset[MessageQueue]:
        """Brokers report 0 for "nothing" too: those are asked about one by one."""
        unsure = [queue for queue, found in progress.items() if found.consumer_offset == 0]
        found = await outcomes({queue: self._lookup.committed(group, queue) for queue in unsure})
        return frozenset(queue for queue in unsure if found.results.get(queue) is None)

    async def _ranges(self, topics: Iterable[str], masters: Mapping[str, str]) -> dict[MessageQueue, QueueRange | None]:
        """First and next offset of every queue of the topics, with one request per topic and broker; None where the
        broker does not answer."""
        ranges: dict[MessageQueue, QueueRange | None] = {}
        for topic in topics:
            queues = await self._queues(topic)
            ranges |= dict.fromkeys(queues)
            asked = {queue.broker_name for queue in queues} & masters.keys()
            found = await outcomes(
                {name: self._session.call(masters[name], TopicStatsRequest(topic=topic)) for name in asked}
            )
            for answer in found.results.values():
                ranges |= {
                    queue: one for queue, one in TopicStats.decode(answer.body).queues.items() if queue in ranges
                }
        return ranges

    async def _queues(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            return subscribe_queues(topic, await self._session.routes.get(topic))
        except TopicNotFoundError:
            return ()


def _unreachable(found: Outcomes[str, Command]) -> dict[str, RocketQError]:
    return {name: error for name, error in found.failures.items() if not isinstance(error, ConsumerNotOnlineError)}
