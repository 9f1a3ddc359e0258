"""All brokers, topics and groups of a cluster with a few requests per broker."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rocketq.client.core.overview import (
    BrokerAnswers,
    ClusterOverview,
    MemberFigures,
    TopicFigures,
    decode_committed,
    decode_progress,
    decode_table,
    needs_committed,
    summarize,
)
from rocketq.client.core.routes import MASTER_ID
from rocketq.client.fan_out import outcomes
from rocketq.client.session import Session
from rocketq.errors import RemotingError, RocketQError
from rocketq.protocol.bodies.clients import ConsumerConnections, ProducerTable
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.bodies.stats import ReplicationState
from rocketq.protocol.bodies.topics import TopicStats
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import BrokerError, ConsumerNotOnlineError
from rocketq.protocol.flags import ConsumeType, MessageModel
from rocketq.protocol.headers.groups import ConsumerConnectionRequest
from rocketq.protocol.headers.topics import TopicStatsRequest

TOPICS_TABLE: Final = "topicConfigTable"
GROUPS_TABLE: Final = "subscriptionGroupTable"
TIMEOUT_MS: Final = 3_000


class AsyncOverview:
    """Takes overviews of one cluster repeatedly; decoded tables are kept until they change.

    A round is one request to a NameServer and six or seven per broker. `topics_asked` and `groups_asked` are asked for
    one by one in addition; their figures are remembered for later rounds.
    """

    def __init__(self, session: Session, *, timeout_ms: int = TIMEOUT_MS) -> None:
        self._session = session
        self._timeout_ms = timeout_ms
        self._tables: dict[tuple[str, str], tuple[bytes, dict[str, dict[str, Any]]]] = {}
        self._unsupported: set[tuple[str, int]] = set()
        self.topic_figures: dict[str, TopicFigures] = {}
        self.member_figures: dict[str, MemberFigures] = {}
        self.answers: tuple[BrokerAnswers, ...] = ()

    async def take(
        self, *, topics_asked: Iterable[str] = (), groups_asked: Iterable[str] = (), with_tables: bool = True
    ) -> ClusterOverview:
        """One round. Brokers that do not answer in time are named in `partial`; RemotingError without a NameServer.

        Without `with_tables` the tables of topics and groups of an earlier round are used again.
        """
        table = await self._session.cluster()
        answers = []
        for name, data in sorted(table.brokers.items()):
            addr = data.addrs.get(MASTER_ID) or data.addrs[min(data.addrs)]
            replicas = {str(number): each for number, each in sorted(data.addrs.items())}
            answers.append(BrokerAnswers(name, data.cluster, addr, replicas))
        counts = await asyncio.gather(*(self._fill(one, with_tables=with_tables) for one in answers))
        self.answers = tuple(answers)
        reachable = {one.name: one.addr for one in answers if one.reason is None}
        asked = await self._ask_topics(topics_asked, reachable) + await self._ask_members(groups_asked, reachable)
        clusters = {name: tuple(sorted(brokers)) for name, brokers in sorted(table.clusters.items())}
        return await asyncio.to_thread(
            summarize,
            self.answers,
            clusters,
            taken_ms=self._session.clock.now_ms(),
            requests=1 + sum(counts) + asked,
            topic_figures=dict(self.topic_figures),
            member_figures=dict(self.member_figures),
        )

    async def _fill(self, answers: BrokerAnswers, *, with_tables: bool) -> int:
        """Ask one broker for everything; the number of requests."""
        addr = answers.addr
        codes = {
            RequestCode.GET_BROKER_RUNTIME_INFO,
            RequestCode.GET_ALL_TOPIC_CONFIG,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_BROKER_CONSUME_STATS,
            RequestCode.GET_ALL_PRODUCER_INFO,
            RequestCode.GET_BROKER_HA_STATUS,
        }
        codes -= {code for code in codes if (addr, code) in self._unsupported}
        if not with_tables:
            answers.topics, answers.groups = self._kept(addr, TOPICS_TABLE), self._kept(addr, GROUPS_TABLE)
            codes -= {RequestCode.GET_ALL_TOPIC_CONFIG} if answers.topics is not None else set()
            codes -= {RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG} if answers.groups is not None else set()
        found = await outcomes({code: self._bulk(addr, code) for code in codes})
        requests = len(codes)
        for code, error in found.failures.items():
            if isinstance(error, BrokerError) and code is not RequestCode.GET_BROKER_RUNTIME_INFO:
                self._unsupported.add((addr, code))
            if isinstance(error, RemotingError) or code is RequestCode.GET_BROKER_RUNTIME_INFO:
                answers.reason = _reason(error)
        bodies = found.results
        try:
            await self._decode(answers, bodies)
            if needs_committed(answers):
                requests += 1
                body = await self._bulk(addr, RequestCode.GET_ALL_CONSUMER_OFFSET)
                answers.committed = await asyncio.to_thread(decode_committed, body)
        except RocketQError as error:
            answers.reason = answers.reason or _reason(error)
        return requests

    async def _decode(self, answers: BrokerAnswers, bodies: Mapping[RequestCode, bytes]) -> None:
        addr = answers.addr
        if (body := bodies.get(RequestCode.GET_BROKER_RUNTIME_INFO)) is not None:
            answers.runtime = KeyValues.decode(body).table
        if (body := bodies.get(RequestCode.GET_ALL_TOPIC_CONFIG)) is not None:
            answers.topics = await self._table(addr, TOPICS_TABLE, body)
        if (body := bodies.get(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)) is not None:
            answers.groups = await self._table(addr, GROUPS_TABLE, body)
        if (body := bodies.get(RequestCode.GET_BROKER_CONSUME_STATS)) is not None:
            answers.progress = await asyncio.to_thread(decode_progress, body)
        if (body := bodies.get(RequestCode.GET_ALL_PRODUCER_INFO)) is not None:
            producers = ProducerTable.decode(body).groups
            answers.producers = len({one.client_id for group in producers.values() for one in group})
        if body := bodies.get(RequestCode.GET_BROKER_HA_STATUS):
            answers.replication = ReplicationState.decode(body)

    def _kept(self, addr: str, member: str) -> dict[str, dict[str, Any]] | None:
        kept = self._tables.get((addr, member))
        return None if kept is None else kept[1]

    async def _table(self, addr: str, member: str, body: bytes) -> dict[str, dict[str, Any]]:
        digest = hashlib.blake2b(body, digest_size=16).digest()
        kept = self._tables.get((addr, member))
        if kept is None or kept[0] != digest:
            kept = self._tables[addr, member] = digest, await asyncio.to_thread(decode_table, body, member)
        return kept[1]

    async def _bulk(self, addr: str, code: RequestCode) -> bytes:
        return (await self._session.call(addr, None, code=code, timeout_ms=self._timeout_ms)).body

    async def _ask_topics(self, topics: Iterable[str], reachable: Mapping[str, str]) -> int:
        calls = {}
        for topic in topics:
            for one in self.answers:
                if one.name in reachable and topic in (one.topics or {}):
                    calls[topic, one.name] = self._topic_stats(one.addr, topic)
        found = await outcomes(calls)
        now_ms = self._session.clock.now_ms()
        incomplete = {topic for topic, _ in found.failures}
        parts: dict[str, list[TopicStats]] = {}
        for (topic, _), stats in found.results.items():
            parts.setdefault(topic, []).append(stats)
        for topic, of_brokers in parts.items():
            if topic not in incomplete:
                self.topic_figures[topic] = TopicFigures.of(of_brokers, now_ms)
        return len(calls)

    async def _topic_stats(self, addr: str, topic: str) -> TopicStats:
        request = TopicStatsRequest(topic=topic)
        return TopicStats.decode((await self._session.call(addr, request, timeout_ms=self._timeout_ms)).body)

    async def _ask_members(self, groups: Iterable[str], reachable: Mapping[str, str]) -> int:
        calls = {
            (group, name): self._session.call(addr, ConsumerConnectionRequest(group=group), timeout_ms=self._timeout_ms)
            for group in groups
            for name, addr in reachable.items()
        }
        found = await outcomes(calls)
        now_ms = self._session.clock.now_ms()
        parts: dict[str, list[ConsumerConnections]] = {group: [] for group, _ in calls}
        incomplete = {
            group for (group, _), error in found.failures.items() if not isinstance(error, ConsumerNotOnlineError)
        }
        for (group, _), answer in found.results.items():
            parts[group].append(ConsumerConnections.decode(answer.body))
        for group, members in parts.items():
            if group not in incomplete:
                self.member_figures[group] = _members(members, now_ms)
        return len(calls)


def _members(parts: list[ConsumerConnections], now_ms: int) -> MemberFigures:
    first = parts[0] if parts else None
    return MemberFigures(
        members=len({member.client_id for part in parts for member in part.connections}),
        mode=None if first is None else "pull" if first.consume_type is ConsumeType.CONSUME_ACTIVELY else "push",
        model=None if first is None else "broadcasting" if first.model is MessageModel.BROADCASTING else "clustering",
        conflicts=sum(len(part.conflicts or {}) for part in parts),
        topics=tuple(sorted({topic for part in parts for topic in part.subscriptions if not topic.startswith("%")})),
        asked_ms=now_ms,
    )


def _reason(error: RocketQError) -> str:
    return error.reason if isinstance(error, RemotingError) else str(error)
