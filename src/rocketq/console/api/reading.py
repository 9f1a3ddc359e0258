"""Clusters, topics, groups, brokers: what can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Query
from starlette.requests import Request
from starlette.responses import Response

from rocketq.client.admin.groups import GroupStatus
from rocketq.client.core.overview import (
    BrokerSummary,
    GroupSummary,
    MissingBroker,
    QueueProgressSummary,
    TopicSummary,
    queue_progress,
)
from rocketq.client.fan_out import outcomes
from rocketq.console.context import Call, Console, answer
from rocketq.console.rates import ClusterFigures, Finding, is_stale, is_users
from rocketq.errors import RocketQError
from rocketq.model.lag import UnknownLag
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.flags import Perm
from rocketq.protocol.versions import version_name

router = APIRouter(tags=["read"])
Asked = Annotated[Call, Depends(Call)]
WINDOW_MAX: Final = 1_000
_Row = TypeVar("_Row")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    name: str
    name_servers: tuple[str, ...]
    error: str | None = None
    figures: ClusterFigures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterList:
    items: tuple[ClusterInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """The state of a cluster: findings are sorted, the worst first."""

    cluster: str
    asOf: int
    stale: bool
    error: str | None
    figures: ClusterFigures
    findings: tuple[Finding, ...]
    brokers: tuple[BrokerSummary, ...]
    topics: tuple[TopicSummary, ...]
    groups: tuple[GroupSummary, ...]
    partial: tuple[MissingBroker, ...]
    changes: tuple[dict[str, Any], ...]
    """The newest lines of the audit log."""
    requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPage:
    total: int
    items: tuple[TopicSummary, ...]
    partial: tuple[MissingBroker, ...]
    asOf: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    total: int
    items: tuple[GroupSummary, ...]
    partial: tuple[MissingBroker, ...]
    asOf: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRow:
    """One queue of a topic."""

    broker: str
    queue_id: int
    min: int
    max: int
    messages: int
    last_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOnBroker:
    broker: str
    read_queues: int
    write_queues: int
    perm: str
    order: bool
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRow:
    group: str
    client_id: str
    addr: str
    language: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroupLag:
    group: str
    lag: int | None
    reason: str | None
    members: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    topic: TopicSummary
    configs: tuple[TopicOnBroker, ...]
    queues: tuple[QueueRow, ...]
    groups: tuple[TopicGroupLag, ...]
    producers: tuple[ProducerRow, ...]
    partial: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    client_id: str
    addr: str
    language: str
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    group: str
    summary: GroupSummary | None
    online: bool
    lag: int | None
    lag_known: int
    consume_tps: float
    consume_type: str | None
    model: str | None
    from_where: str | None
    members: tuple[MemberRow, ...]
    subscriptions: Mapping[str, str]
    conflicts: Mapping[str, tuple[str, ...]]
    queues: tuple[QueueProgressSummary, ...]
    configs: Mapping[str, GroupConfig] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDetail:
    client_id: str
    properties: Mapping[str, str]
    rates: Mapping[str, Mapping[str, float]]
    queues: tuple[Mapping[str, Any], ...]
    stacks: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingRow:
    """One setting. `values` by broker."""

    key: str
    values: Mapping[str, str]
    differs: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDetail:
    broker: BrokerSummary
    settings: tuple[SettingRow, ...]
    replication: Any
    producers: tuple[ProducerRow, ...]
    reasons: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points are pairs of epoch seconds and value."""

    name: str
    points: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryAnswer:
    since_s: int
    until_s: int
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerView:
    addr: str
    reachable: bool
    reason: str | None
    brokers: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerList:
    items: tuple[NameServerView, ...]
    agree: bool


@router.get("/clusters", response_model=ClusterList)
async def clusters(request: Request) -> Response:
    """Clusters that this console serves and the user may see."""
    console: Console = request.app.state.console
    user = request.state.user
    found = [
        ClusterInfo(
            name=one.name,
            name_servers=one.target.name_servers,
            error=one.sampler.error,
            figures=one.sampler.figures,
        )
        for one in console.clusters.values()
        if user.may_see(one.name)
    ]
    return answer(request, ClusterList(items=tuple(found)))


@router.get("/clusters/{cluster}/overview", response_model=Overview)
async def overview(call: Asked) -> Response:
    """Health, sums, brokers, the busiest topics and the groups that are furthest behind."""
    found = await call.overview()
    figures = call.sampler.figures
    assert figures is not None
    topics = sorted(
        (one for one in found.topics if one.kind not in ("system", "retry", "dlq")),
        key=lambda one: (-(one.in_tps or 0), -(one.end or 0)),
    )
    groups = sorted((one for one in found.groups if is_users(one)), key=lambda one: (-one.lag_known, one.name))
    call.sampler.show(topics=[one.name for one in topics[:10]], groups=[one.name for one in groups[:10]])
    now_ms = call.admin.session.clock.now_ms()
    return call.answer(
        Overview(
            cluster=call.cluster.name,
            asOf=found.taken_ms,
            stale=is_stale(found, now_ms, call.console.config.sample_s),
            error=call.sampler.error,
            figures=figures,
            findings=call.sampler.findings,
            brokers=found.brokers,
            topics=tuple(topics[:10]),
            groups=tuple(groups[:10]),
            partial=found.partial,
            changes=tuple(await asyncio.to_thread(call.console.audit.newest, 5, text=call.cluster.name)),
            requests=found.requests,
        )
    )


@router.get("/clusters/{cluster}/history", response_model=HistoryAnswer)
async def history(
    call: Asked,
    series: Annotated[str, Query(description="Names, joined by commas: in, out, lag, dead, group/NAME/lag, ...")],
    span_s: Annotated[int, Query(ge=10, le=31 * 86_400)] = 3_600,
    until_s: int | None = None,
) -> Response:
    """Figures over time."""
    end_s = until_s or call.admin.session.clock.now_ms() // 1000
    names = series.split(",")[:20]
    found = await call.console.history.read([f"{call.cluster.name}/{name}" for name in names], end_s - span_s, end_s)
    return call.answer(
        HistoryAnswer(
            since_s=end_s - span_s,
            until_s=end_s,
            series=tuple(
                Series(name=name, points=tuple(thinned(found[f"{call.cluster.name}/{name}"]))) for name in names
            ),
        )
    )


def thinned(points: list[tuple[int, float]], count_max: int = 720) -> list[tuple[int, float]]:
    """Means of neighbours, where there are more points than a chart can show."""
    if len(points) <= count_max:
        return points
    size = -(-len(points) // count_max)
    parts = [points[at : at + size] for at in range(0, len(points), size)]
    return [(part[-1][0], sum(value for _, value in part) / len(part)) for part in parts]


@router.get("/clusters/{cluster}/topics", response_model=TopicPage)
async def topics(
    call: Asked,
    q: str = "",
    kind: str = "",
    broker: str = "",
    show: Annotated[str, Query(description="unread, quiet, behind, differs")] = "",
    system: bool = False,
    names: str = "",
    sort: str = "name",
    from_: Annotated[int, Query(alias="from", ge=0)] = 0,
    n: Annotated[int, Query(ge=1, le=WINDOW_MAX)] = 100,
) -> Response:
    """Topics, filtered and sorted here: one window of rows."""
    found = await call.overview()
    kinds = set(kind.split(",")) if kind else set()
    chosen = set(names.split(",")) if names else None
    text = q.lower()
    quiet_ms = found.taken_ms - 7 * 86_400_000
    rows = [
        one
        for one in found.topics
        if (one.kind in kinds if kinds else system or one.kind not in ("system", "retry", "dlq"))
        and (not text or text in one.name.lower())
        and (not broker or broker in one.brokers)
        and (chosen is None or one.name in chosen)
        and call.user.may_touch(one.name)
        and (
            not show
            or (show == "unread" and not one.groups)
            or (show == "quiet" and one.last_ms is not None and one.last_ms < quiet_ms)
            or (show == "behind" and (one.max_lag or 0) > 0)
            or (show == "differs" and one.differs)
        )
    ]
    rows = ordered(rows, sort)
    window = rows[from_ : from_ + n]
    call.sampler.show(topics=[one.name for one in window[:100]])
    return call.answer(TopicPage(total=len(rows), items=tuple(window), partial=found.partial, asOf=found.taken_ms))


@router.get("/clusters/{cluster}/groups", response_model=GroupPage)
async def groups(
    call: Asked,
    q: str = "",
    show: Annotated[str, Query(description="behind, unknown, offline, conflict, empty")] = "",
    system: bool = False,
    topic: str = "",
    names: str = "",
    sort: str = "-lag_known",
    from_: Annotated[int, Query(alias="from", ge=0)] = 0,
    n: Annotated[int, Query(ge=1, le=WINDOW_MAX)] = 100,
) -> Response:
    """Consumer groups with their lag: one window of rows."""
    found = await call.overview()
    text = q.lower()
    chosen = set(names.split(",")) if names else None
    rows = [
        one
        for one in found.groups
        if (system or is_users(one))
        and (not text or text in one.name.lower())
        and (not topic or topic in one.topics)
        and (chosen is None or one.name in chosen)
        and (
            not show
            or (show == "behind" and one.lag_known > 0)
            or (show == "unknown" and one.state == "unknown")
            or (show == "offline" and one.members == 0 and one.lag_known > 0)
            or (show == "conflict" and one.conflicts > 0)
            or (show == "empty" and one.members == 0)
        )
    ]
    rows = ordered(rows, sort)
    window = rows[from_ : from_ + n]
    call.sampler.show(groups=[one.name for one in window[:100]])
    return call.answer(GroupPage(total=len(rows), items=tuple(window), partial=found.partial, asOf=found.taken_ms))


def ordered(rows: Sequence[_Row], sort: str) -> list[_Row]:
    """By an attribute, `-` in front for the largest first; unknown values are last either way."""
    name, reverse = sort.lstrip("-"), sort.startswith("-")
    if not rows or not hasattr(rows[0], name):
        return list(rows)

    def key(row: _Row) -> Any:
        value = getattr(row, name)
        return len(value) if isinstance(value, (tuple, Mapping)) else value

    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    return [*sorted(known, key=key, reverse=reverse), *unknown]


@router.get("/clusters/{cluster}/topics/{topic}", response_model=TopicDetail)
async def topic_detail(call: Asked, topic: str) -> Response:
    """One topic: its settings and queues on each broker, who reads it, who is connected to send."""
    call.require_topic(topic)
    admin = call.admin
    configs = await admin.topics.configs(topic)
    parts = await outcomes({"stats": _topic_queues(call, topic)})
    overview_now = await call.overview()
    summary = next((one for one in overview_now.topics if one.name == topic), None)
    if summary is None:
        summary = TopicSummary(name=topic, kind="normal", brokers=tuple(configs))
    call.sampler.show(topics=[topic], groups=summary.groups)
    partial = {name: str(error) for name, error in parts.failures.items()}
    return call.answer(
        TopicDetail(
            topic=summary,
            configs=tuple(
                TopicOnBroker(
                    broker=name,
                    read_queues=one.read_queue_count,
                    write_queues=one.write_queue_count,
                    perm=Perm(one.perm & 7).text,
                    order=one.order,
                    attributes=one.attributes or {},
                )
                for name, one in sorted(configs.items())
            ),
            queues=parts.results.get("stats", ()),
            groups=_topic_groups(call, topic, overview_now.groups),
            producers=await _producers(call, summary.brokers),
            partial=partial,
        )
    )


async def _topic_queues(call: Call, topic: str) -> tuple[QueueRow, ...]:
    stats = await call.admin.topics.stats(topic)
    return tuple(
        QueueRow(
            broker=queue.broker_name,
            queue_id=queue.queue_id,
            min=one.min_offset,
            max=one.max_offset,
            messages=one.max_offset - one.min_offset,
            last_ms=one.updated_ms or None,
        )
        for queue, one in stats.queues.items()
    )


def _topic_groups(call: Call, topic: str, groups: Iterable[GroupSummary]) -> tuple[TopicGroupLag, ...]:
    found = []
    for group in groups:
        lags: list[int | None] = []
        reason = None
        for one in call.sampler.source.answers:
            progress = (one.progress or {}).get(group.name)
            for row in progress.queues if progress is not None else ():
                if row[0] == topic:
                    queue = queue_progress(*row, never_committed=False)
                    lags.append(queue.lag)
                    reason = reason or queue.reason
        if lags or topic in group.topics:
            known = [lag for lag in lags if lag is not None]
            lag = sum(known) if lags and len(known) == len(lags) else None
            if lag is None and reason is None:
                reason = UnknownLag.NEVER_COMMITTED.value
            found.append(TopicGroupLag(group=group.name, lag=lag, reason=reason, members=group.members))
    return tuple(found)


async def _producers(call: Call, brokers: Iterable[str]) -> tuple[ProducerRow, ...]:
    tables = await outcomes({name: call.admin.brokers.producers(name) for name in brokers})
    found = {
        (group, one.client_id): ProducerRow(
            group=group,
            client_id=one.client_id,
            addr=one.remote_addr.lstrip("/"),
            language=one.language,
            version=version_name(one.version),
        )
        for table in tables.results.values()
        for group, producers in table.items()
        for one in producers
        if group != "CLIENT_INNER_PRODUCER"
    }
    return tuple(found[key] for key in sorted(found))


@router.get("/clusters/{cluster}/groups/{group}", response_model=GroupDetail)
async def group_detail(call: Asked, group: str) -> Response:
    """One group: members, subscriptions, and the lag of each queue or why it is unknown."""
    return call.answer(await read_group(call, group))


async def read_group(call: Call, group: str) -> GroupDetail:
    status = await call.admin.groups.status(group)
    configs = await outcomes({"configs": call.admin.groups.list()})
    call.sampler.show(groups=[group])
    overview_now = call.sampler.overview
    summary = next((one for one in overview_now.groups if one.name == group), None) if overview_now else None
    return GroupDetail(
        group=group,
        summary=summary,
        online=status.online,
        lag=status.lag,
        lag_known=status.lag_known,
        consume_tps=status.consume_tps,
        consume_type=status.consume_type.value if status.consume_type else None,
        model=status.model.value if status.model else None,
        from_where=status.from_where.value if status.from_where else None,
        members=tuple(
            MemberRow(client_id=one.client_id, addr=one.addr, language=one.language, version=version_name(one.version))
            for one in status.members
        ),
        subscriptions={topic: one.expression for topic, one in status.subscriptions.items()},
        conflicts=dict(status.conflicts),
        queues=_lag_rows(status),
        configs=configs.results.get("configs", {}).get(group, {}),
        unreachable=dict(status.unreachable),
    )


def _lag_rows(status: GroupStatus) -> tuple[QueueProgressSummary, ...]:
    return tuple(
        QueueProgressSummary(
            topic=one.queue.topic,
            broker=one.queue.broker_name,
            queue_id=one.queue.queue_id,
            committed=one.committed,
            end=one.max_offset,
            lag=one.lag,
            reason=one.unknown.value if one.unknown is not None else None,
            last_ms=one.last_ms,
        )
        for one in status.queues
    )


@router.get("/clusters/{cluster}/groups/{group}/members/{client_id:path}", response_model=MemberDetail)
async def member_detail(call: Asked, group: str, client_id: str, stacks: bool = False) -> Response:
    """The running report of a connected member: rates, cached messages, and thread stacks on request."""
    found = await call.admin.groups.running(group, client_id, with_stacks=stacks)
    hidden = ("accesskey", "secretkey", "password", "token")
    return call.answer(
        MemberDetail(
            client_id=client_id,
            properties={
                name: value
                for name, value in sorted(found.properties.items())
                if not any(word in name.lower() for word in hidden)
            },
            rates={
                topic: {
                    "consume_ms": one.consume_rt,
                    "ok_tps": one.consume_ok_tps,
                    "failed_tps": one.consume_failed_tps,
                    "pull_tps": one.pull_tps,
                    "failed_count": float(one.consume_failed_count),
                }
                for topic, one in found.rates.items()
            },
            queues=tuple(
                {
                    "topic": queue.topic,
                    "broker": queue.broker_name,
                    "queue_id": queue.queue_id,
                    "cached": one.cached_count,
                    "cached_mib": one.cached_mib,
                    "commit_offset": one.commit_offset,
                    "locked": one.locked,
                    "last_pull_ms": one.last_pull_ms or None,
                    "last_consume_ms": one.last_consume_ms or None,
                }
                for queue, one in found.queues.items()
            ),
            stacks=found.stacks,
        )
    )


@router.get("/clusters/{cluster}/brokers", response_model=tuple[BrokerSummary, ...])
async def brokers(call: Asked) -> Response:
    """All brokers with their figures."""
    found = await call.overview()
    return call.answer({"items": found.brokers, "partial": found.partial, "asOf": found.taken_ms})


@router.get("/clusters/{cluster}/brokers/{broker}", response_model=BrokerDetail)
async def broker_detail(call: Asked, broker: str) -> Response:
    """One broker: runtime, settings beside those of the other brokers, replicas, producers."""
    found = await call.overview()
    summary = next((one for one in found.brokers if one.name == broker), None)
    if summary is None:
        await call.admin.brokers.addr(broker)  # NotFoundError
        summary = BrokerSummary(name=broker, cluster="", addr="")
    names = [one.name for one in found.brokers]
    configs = await outcomes({name: call.admin.brokers.config(name) for name in names})
    replication = await outcomes({broker: call.admin.brokers.replication(broker)})
    own = configs.results.get(broker, {})
    settings = [
        SettingRow(key=key, values=values, differs=len(set(values.values())) > 1 and key not in _OWN_SETTINGS)
        for key in sorted(own)
        if (values := {name: config[key] for name, config in configs.results.items() if key in config})
    ]
    failures: dict[str, RocketQError] = {**replication.failures, **configs.failures}
    return call.answer(
        BrokerDetail(
            broker=summary,
            settings=tuple(settings),
            replication=replication.results.get(broker),
            producers=await _producers(call, [broker]),
            reasons={name: str(error) for name, error in failures.items()},
        )
    )


_OWN_SETTINGS: Final = frozenset(
    {
        "brokerName",
        "brokerId",
        "listenPort",
        "haListenPort",
        "brokerIP1",
        "brokerIP2",
        "storePathRootDir",
        "storePathCommitLog",
        "storePathConsumeQueue",
        "storePathIndex",
        "storeCheckpoint",
        "abortFile",
        "fastListenPort",
    }
)
"""Settings in which brokers always differ."""


@router.get("/clusters/{cluster}/nameservers", response_model=NameServerList)
async def name_servers(call: Asked) -> Response:
    """What each NameServer believes; `agree` is False where they differ."""
    found = await call.admin.brokers.by_name_server()
    views = tuple(
        NameServerView(
            addr=addr,
            reachable=addr in found.results,
            reason=str(found.failures[addr]) if addr in found.failures else None,
            brokers={
                name: {str(number): each for number, each in sorted(data.addrs.items())}
                for name, data in sorted(found.results[addr].brokers.items())
            }
            if addr in found.results
            else {},
        )
        for addr in call.admin.session.name_servers.addrs
    )
    beliefs = [view.brokers for view in views if view.reachable]
    return call.answer(NameServerList(items=views, agree=all(one == beliefs[0] for one in beliefs[1:])))
