"""The state of a whole cluster from a few bulk answers per broker: brokers, topics, groups and their lag.

Bulk answers hold thousands of entries, with objects as keys in Apache's JSON dialect. Their keys are rewritten with one
regular expression and the rest is read by the standard decoder, which takes a tenth of the time of the general one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rocketq.errors import RemoteProtocolError
from rocketq.model.lag import UnknownLag, queue_lag
from rocketq.protocol.bodies.stats import ConsumeStatsList, ReplicationState
from rocketq.protocol.bodies.topics import TopicStats
from rocketq.protocol.flags import Perm
from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_topic

MESSAGE_TYPES: Final = {"FIFO": "fifo", "DELAY": "delay", "TRANSACTION": "transaction"}
SPARK_TOPIC: Final = "rmq_sys_ROCKETQ_SPARK"
_QUEUE_KEY = re.compile(r'\{"brokerName":"([^"\\]*)","queueId":(\d+),"topic":"([^"\\]*)"\}:')
_NUMBER_KEY = re.compile(r"([{,])(\d+):")
_SEPARATOR: Final = "\x00"


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingBroker:
    """A broker whose figures are missing from an answer."""

    broker: str
    addr: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueProgressSummary:
    """One queue for one group. `lag` is None while unknown, `reason` says why."""

    topic: str
    broker: str
    queue_id: int
    committed: int | None
    end: int | None
    lag: int | None
    reason: str | None = None
    last_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSummary:
    """A broker now. Rates are messages per second over ten seconds."""

    name: str
    cluster: str
    addr: str
    replicas: Mapping[str, str] = field(default_factory=dict)
    reachable: bool = True
    reason: str | None = None
    version: str = ""
    product: str = ""
    in_tps: float | None = None
    out_tps: float | None = None
    in_today: int | None = None
    out_today: int | None = None
    messages_in: int | None = None
    messages_out: int | None = None
    disk_ratio: float | None = None
    boot_ms: int | None = None
    put_p99_ms: float | None = None
    earliest_ms: int | None = None
    in_sync: int | None = None
    replicas_behind_bytes: int | None = None
    replica_count: int | None = None
    producers: int | None = None
    runtime: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """A topic over all its brokers. None is unknown: nobody has asked the broker yet, or it did not answer."""

    name: str
    kind: str
    brokers: tuple[str, ...] = ()
    read_queues: int = 0
    write_queues: int = 0
    perm: str = ""
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)
    differs: bool = False
    """Whether brokers have different settings for it."""
    groups: tuple[str, ...] = ()
    max_lag: int | None = None
    messages: int | None = None
    """Messages kept, of all queues."""
    end: int | None = None
    """Sum of the ends of all queues: it grows by one with each message."""
    last_ms: int | None = None
    in_tps: float | None = None
    asked_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """A consumer group over all brokers. `lag` is None as long as the lag of one queue is unknown."""

    name: str
    topics: tuple[str, ...] = ()
    lag: int | None = None
    lag_known: int = 0
    state: str = "not-subscribed"
    """`known`, `unknown` or `not-subscribed`."""
    reason: str | None = None
    consume_tps: float | None = None
    members: int | None = None
    mode: str | None = None
    model: str | None = None
    conflicts: int = 0
    enabled: bool = True
    retry_max: int | None = None
    retry_waiting: int | None = None
    dead_letters: int | None = None
    oldest_ms: int | None = None
    """Store time of the last message consumed in the queue that is furthest behind."""
    delay_ms: int | None = None
    """Age of that message when the queue is not empty."""
    trend: str | None = None
    """`catching-up`, `steady` or `falling-behind`."""
    done_in_s: float | None = None
    worst: QueueProgressSummary | None = None
    asked_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOverview:
    """All that one round of bulk requests found. `requests` is their number."""

    taken_ms: int
    clusters: Mapping[str, tuple[str, ...]]
    brokers: tuple[BrokerSummary, ...]
    topics: tuple[TopicSummary, ...]
    groups: tuple[GroupSummary, ...]
    partial: tuple[MissingBroker, ...] = ()
    requests: int = 0


@dataclass(slots=True)
class BrokerAnswers:
    """What one broker said in one round; None for what failed or was not asked."""

    name: str
    cluster: str
    addr: str
    replicas: Mapping[str, str]
    runtime: Mapping[str, str] | None = None
    topics: Mapping[str, Mapping[str, Any]] | None = None
    groups: Mapping[str, Mapping[str, Any]] | None = None
    progress: Mapping[str, BulkProgress] | None = None
    committed: Mapping[tuple[str, str], Mapping[int, int]] | None = None
    replication: ReplicationState | None = None
    producers: int | None = None
    reason: str | None = None


@dataclass(slots=True)
class BulkProgress:
    """One group on one broker."""

    queues: list[tuple[str, str, int, int, int, int]] = field(default_factory=list)
    """Topic, broker, queue id, end, committed, store time of the last message consumed."""
    consume_tps: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFigures:
    """What a broker said of one topic when it was asked last."""

    messages: int
    end: int
    last_ms: int | None
    asked_ms: int

    @classmethod
    def of(cls, parts: Iterable[TopicStats], asked_ms: int) -> TopicFigures:
        ranges = [found for part in parts for found in part.queues.values()]
        return cls(
            messages=sum(found.max_offset - found.min_offset for found in ranges),
            end=sum(found.max_offset for found in ranges),
            last_ms=max((found.updated_ms for found in ranges), default=0) or None,
            asked_ms=asked_ms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberFigures:
    """Who is connected, when the brokers were asked last."""

    members: int
    mode: str | None
    model: str | None
    conflicts: int
    topics: tuple[str, ...]
    asked_ms: int


def decode_progress(body: bytes) -> dict[str, BulkProgress]:
    """The answer to GET_BROKER_CONSUME_STATS (317), by group."""
    text = body.decode("utf-8", "replace")
    rewritten = _QUEUE_KEY.sub(lambda found: f'"{found[1]}{_SEPARATOR}{found[2]}{_SEPARATOR}{found[3]}":', text)
    try:
        value = json.loads(rewritten, strict=False)
    except ValueError:  # members in another order, or other liberties: the general decoder reads all of them
        return _progress_of(ConsumeStatsList.decode(body))
    found: dict[str, BulkProgress] = {}
    try:
        for element in value.get("consumeStatsList") or ():
            for group, parts in element.items():
                progress = found.setdefault(group, BulkProgress())
                for part in parts:
                    progress.consume_tps += float(part.get("consumeTps") or 0.0)
                    for key, queue in (part.get("offsetTable") or {}).items():
                        broker, queue_id, topic = key.split(_SEPARATOR)
                        row = (
                            int(queue.get(name) or 0) for name in ("brokerOffset", "consumerOffset", "lastTimestamp")
                        )
                        progress.queues.append((topic, broker, int(queue_id), *row))
    except (AttributeError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"the answer to 317 cannot be read: {error}") from None
    return found


def _progress_of(stats: ConsumeStatsList) -> dict[str, BulkProgress]:
    found: dict[str, BulkProgress] = {}
    for element in stats.groups:
        for group, parts in element.items():
            progress = found.setdefault(group, BulkProgress())
            for part in parts:
                progress.consume_tps += part.consume_tps
                progress.queues += [
                    (one.topic, one.broker_name, one.queue_id, at.broker_offset, at.consumer_offset, at.last_ms)
                    for one, at in part.queues.items()
                ]
    return found


def decode_committed(body: bytes) -> dict[tuple[str, str], dict[int, int]]:
    """The answer to GET_ALL_CONSUMER_OFFSET (43): offsets by topic and group, then by queue."""
    value = _loads(_NUMBER_KEY.sub(r'\1"\2":', body.decode("utf-8", "replace")))
    found = {}
    for name, offsets in (value.get("offsetTable") or {}).items():
        topic, _, group = name.partition("@")
        found[topic, group] = {int(queue_id): int(offset) for queue_id, offset in (offsets or {}).items()}
    return found


def decode_table(body: bytes, member: str) -> dict[str, dict[str, Any]]:
    """The table of topics (21) or groups (201), as it came."""
    value = _loads(body.decode("utf-8", "replace")).get(member) or {}
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"{member} is no object")
    return value


def _loads(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text, strict=False)
    except ValueError as error:
        raise RemoteProtocolError(f"a bulk answer is no JSON: {error}") from None
    if not isinstance(value, dict):
        raise RemoteProtocolError("a bulk answer is no object")
    return value


def kind_of(topic: str, attributes: Mapping[str, str], reserved: frozenset[str] = frozenset()) -> str:
    """`normal`, `fifo`, `delay`, `transaction`, `retry`, `dlq` or `system`."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dlq"
    if is_system_topic(topic) or topic in reserved or topic.removesuffix("_REPLY_TOPIC") in reserved:
        return "system"
    if topic.startswith("rmq_sys_"):
        return "system"
    return MESSAGE_TYPES.get(attributes.get("message.type", ""), "normal")


def first_number(text: str | None) -> float | None:
    """Of a text such as `1.99 0.38 `, whose slots are empty in a young broker."""
    for part in (text or "").split():
        try:
            return float(part)
        except ValueError:
            return None
    return None


def broker_summary(answers: BrokerAnswers) -> BrokerSummary:
    """From the runtime information all RocketMQ brokers give, and their replication state."""
    runtime = answers.runtime or {}
    links = answers.replication.replicas if answers.replication is not None else ()
    got_tps = first_number(runtime.get("getTransferredTps") or runtime.get("getTransferedTps"))
    replicas = {str(number): addr for number, addr in answers.replicas.items()}
    return BrokerSummary(
        name=answers.name,
        cluster=answers.cluster,
        addr=answers.addr,
        replicas=replicas,
        reachable=answers.runtime is not None,
        reason=answers.reason,
        version=runtime.get("brokerVersionDesc", ""),
        product=runtime.get("rocketqVersion", ""),
        in_tps=first_number(runtime.get("putTps")),
        out_tps=got_tps,
        in_today=_difference(runtime, "msgPutTotalTodayNow", "msgPutTotalTodayMorning"),
        out_today=_difference(runtime, "msgGetTotalTodayNow", "msgGetTotalTodayMorning"),
        messages_in=_whole(runtime, "msgPutTotalTodayNow"),
        messages_out=_whole(runtime, "msgGetTotalTodayNow"),
        disk_ratio=first_number(runtime.get("commitLogDiskRatio")),
        boot_ms=_whole(runtime, "bootTimestamp"),
        put_p99_ms=first_number(runtime.get("putLatency99")),
        earliest_ms=_positive(_whole(runtime, "earliestMessageTimeStamp")),
        in_sync=answers.replication.in_sync_count if answers.replication is not None else None,
        replicas_behind_bytes=max((link.behind_bytes for link in links), default=None),
        replica_count=len(links) if answers.replication is not None else None,
        producers=answers.producers,
        runtime=dict(runtime),
    )


def _whole(table: Mapping[str, str], name: str) -> int | None:
    number = first_number(table.get(name))
    return None if number is None else int(number)


def _positive(number: int | None) -> int | None:
    return number if number is not None and number > 0 else None


def _difference(table: Mapping[str, str], name: str, from_name: str) -> int | None:
    now, before = _whole(table, name), _whole(table, from_name)
    return None if now is None or before is None else now - before


def queue_progress(
    topic: str, broker: str, queue_id: int, end: int, committed: int, last_ms: int, *, never_committed: bool
) -> QueueProgressSummary:
    """The lag of one queue. An empty queue has none; one that nothing was committed for has an unknown one."""
    known = not never_committed and committed >= 0
    found = queue_lag(committed if known else None, None, end)
    return QueueProgressSummary(
        topic=topic,
        broker=broker,
        queue_id=queue_id,
        committed=committed if known else None,
        end=end,
        lag=found.messages,
        reason=found.reason.value if found.reason is not None else None,
        last_ms=last_ms or None,
    )


def group_queues(group: str, answers: Iterable[BrokerAnswers]) -> list[QueueProgressSummary]:
    """All queues of a group that brokers reported."""
    found = []
    for one in answers:
        progress = (one.progress or {}).get(group)
        for topic, broker, queue_id, end, committed, last_ms in progress.queues if progress is not None else ():
            never = (
                committed <= 0 and one.committed is not None and queue_id not in one.committed.get((topic, group), {})
            )
            found.append(queue_progress(topic, broker, queue_id, end, committed, last_ms, never_committed=never))
    return found


def needs_committed(answers: BrokerAnswers) -> bool:
    """Whether an offset of 0 may stand for "nothing": only the table of all offsets (43) tells these apart."""
    return any(row[4] <= 0 < row[3] for progress in (answers.progress or {}).values() for row in progress.queues)


def summarize(
    answers: Iterable[BrokerAnswers],
    clusters: Mapping[str, tuple[str, ...]],
    *,
    taken_ms: int,
    requests: int,
    topic_figures: Mapping[str, TopicFigures],
    member_figures: Mapping[str, MemberFigures],
) -> ClusterOverview:
    """One overview of what all brokers said; `..._figures` are of topics and groups that were asked for one by one."""
    parts = list(answers)
    reserved = frozenset({*clusters, *(one.name for one in parts)})
    groups = _groups(parts, taken_ms, topic_figures, member_figures)
    lags: dict[str, dict[str, int]] = {}
    for one in parts:
        for group in one.progress or {}:
            for queue in group_queues(group, [one]):
                by_group = lags.setdefault(queue.topic, {})
                by_group[group] = by_group.get(group, 0) + (queue.lag or 0)
    for group, members in member_figures.items():
        for topic in members.topics:
            lags.setdefault(topic, {}).setdefault(group, 0)
    return ClusterOverview(
        taken_ms=taken_ms,
        clusters=clusters,
        brokers=tuple(broker_summary(one) for one in parts),
        topics=_topics(parts, reserved, lags, topic_figures),
        groups=groups,
        partial=tuple(
            MissingBroker(broker=one.name, addr=one.addr, reason=one.reason) for one in parts if one.reason is not None
        ),
        requests=requests,
    )


def _topics(
    parts: list[BrokerAnswers],
    reserved: frozenset[str],
    lags: Mapping[str, Mapping[str, int]],
    figures: Mapping[str, TopicFigures],
) -> tuple[TopicSummary, ...]:
    by_name: dict[str, list[tuple[str, Mapping[str, Any]]]] = {}
    for one in parts:
        for name, config in (one.topics or {}).items():
            by_name.setdefault(name, []).append((one.name, config))
    found = []
    for name, configs in sorted(by_name.items()):
        first = configs[0][1]
        attributes = first.get("attributes") or {}
        shapes = {(each.get("readQueueNums"), each.get("writeQueueNums"), each.get("perm")) for _, each in configs}
        of_topic = lags.get(name, {})
        figure = figures.get(name)
        found.append(
            TopicSummary(
                name=name,
                kind=kind_of(name, attributes, reserved),
                brokers=tuple(broker for broker, _ in configs),
                read_queues=sum(int(each.get("readQueueNums") or 0) for _, each in configs),
                write_queues=sum(int(each.get("writeQueueNums") or 0) for _, each in configs),
                perm=Perm(int(first.get("perm") or 0) & 7).text,
                order=bool(first.get("order")),
                attributes=attributes,
                differs=len(shapes) > 1,
                groups=tuple(sorted(of_topic)),
                max_lag=max(of_topic.values(), default=None),
                messages=figure.messages if figure is not None else None,
                end=figure.end if figure is not None else None,
                last_ms=figure.last_ms if figure is not None else None,
                asked_ms=figure.asked_ms if figure is not None else None,
            )
        )
    return tuple(found)


def _groups(
    parts: list[BrokerAnswers],
    taken_ms: int,
    topic_figures: Mapping[str, TopicFigures],
    member_figures: Mapping[str, MemberFigures],
) -> tuple[GroupSummary, ...]:
    configs: dict[str, Mapping[str, Any]] = {}
    rates: dict[str, float] = {}
    for one in parts:
        for name, config in (one.groups or {}).items():
            configs.setdefault(name, config)
        for name, progress in (one.progress or {}).items():
            configs.setdefault(name, {})
            rates[name] = rates.get(name, 0.0) + progress.consume_tps
    silent = [one for one in parts if one.progress is None]
    return tuple(
        _group(name, config, group_queues(name, parts), silent, rates, taken_ms, topic_figures, member_figures)
        for name, config in sorted(configs.items())
    )


def _group(
    name: str,
    config: Mapping[str, Any],
    queues: list[QueueProgressSummary],
    silent: list[BrokerAnswers],
    rates: Mapping[str, float],
    taken_ms: int,
    topic_figures: Mapping[str, TopicFigures],
    member_figures: Mapping[str, MemberFigures],
) -> GroupSummary:
    own = [queue for queue in queues if not queue.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    retries = [queue.lag for queue in queues if queue.topic.startswith(RETRY_PREFIX)]
    counted = [queue for queue in queues if not queue.topic.startswith(DLQ_PREFIX)]
    unknown = [queue for queue in counted if queue.lag is None]
    known = sum(queue.lag for queue in counted if queue.lag is not None)
    members = member_figures.get(name)
    state, reason = "known", None
    if silent and queues:
        state, reason = "unknown", f"{silent[0].name} did not answer: {silent[0].reason}"
    elif unknown:
        state, reason = "unknown", f"{unknown[0].topic} {unknown[0].broker}:{unknown[0].queue_id}: {unknown[0].reason}"
    elif silent:
        state, reason = "unknown", f"{silent[0].name} did not answer: {silent[0].reason}"
    elif not queues:
        state = "not-subscribed" if members is None or not members.members else "unknown"
        reason = None if state == "not-subscribed" else UnknownLag.NEVER_COMMITTED.value
    behind = [queue for queue in own if queue.lag]
    worst = max(behind, key=lambda queue: queue.lag or 0, default=None)
    oldest = min((queue.last_ms for queue in behind if queue.last_ms), default=None)
    dead = topic_figures.get(DLQ_PREFIX + name)
    return GroupSummary(
        name=name,
        topics=tuple(sorted({queue.topic for queue in own} | set(members.topics if members is not None else ()))),
        lag=known if state == "known" else None,
        lag_known=known,
        state=state,
        reason=reason,
        consume_tps=rates.get(name),
        members=members.members if members is not None else None,
        mode=members.mode if members is not None else None,
        model=members.model if members is not None else None,
        conflicts=members.conflicts if members is not None else 0,
        enabled=config.get("consumeEnable") is not False,
        retry_max=config.get("retryMaxTimes"),
        retry_waiting=sum(lag for lag in retries if lag is not None) if retries else None,
        dead_letters=dead.messages if dead is not None else None,
        oldest_ms=oldest,
        delay_ms=max(0, taken_ms - oldest) if oldest is not None else None,
        worst=worst,
        asked_ms=members.asked_ms if members is not None else None,
    )
