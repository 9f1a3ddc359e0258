"""Admission as truth tables: every rejection with its code and remark, and which of two counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from rocketq.access.control import Denial
from rocketq.access.rights import Action
from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.members import Member
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.pipeline.access import OpenAccess
from rocketq.broker.pipeline.admission import (
    AdmissionTables,
    PullAdmission,
    PullAsk,
    Rejection,
    SendAdmission,
    SendAsk,
    admit_pull,
    admit_send,
)
from rocketq.broker.pipeline.quotas import Quotas, charge, parse_quotas, quota_fault
from rocketq.broker.topics.table import TopicTable
from rocketq.model import SysFlag
from rocketq.protocol.bodies.clients import ConsumerData, Subscription
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import MessageModel, TopicFilterType
from rocketq.protocol.names import NOT_FOR_CLIENTS, TIMER_TOPIC, TRACE_TOPIC
from rocketq.protocol.versions import OUR_VERSION
from rocketq.remoting import Connection
from rocketq.store import StoreConfig

NOW_MS = 1_000_000
CONNECTION: Any = object()
TOPIC = TopicConfig(topic="T", read_queue_count=4, write_queue_count=2, perm=6)
GROUP = GroupConfig(group="G")
NO_WRITE, NO_READ, EVERYTHING = 4, 2, 6


class Denying(OpenAccess):
    """Denies one action on one topic."""

    def __init__(self, action: Action) -> None:
        self._action = action

    def denial(
        self, action: Action, topic: str, group: str, principal: str | None, connection: Connection
    ) -> Denial | None:
        remark = f"{principal} lacks {action.value} on {topic} for {group}"
        return Denial(ResponseCode.NO_PERMISSION, remark) if action is self._action else None


@dataclass
class State:
    """What the tables say; by default everything is admitted."""

    config: dict[str, Any] = field(default_factory=dict)
    topic: TopicConfig | None = TOPIC
    group: GroupConfig | None = GROUP
    topics: tuple[str, ...] = ()
    quotas: str = ""
    access: OpenAccess = field(default_factory=OpenAccess)
    forbidden: bool = False
    consumer: ConsumerData | None = None

    def tables(self, root: Path) -> AdmissionTables:
        config = BrokerConfig(name="b", cluster="C", region="R", **self.config)
        settings = Settings(config, StoreConfig(root=root), root / "broker.conf", version=DataVersion())
        topics, groups, consumers = TopicTable(), GroupTable(), ConsumerGroups[Connection]()
        topics.put(*(TopicConfig(topic=name) for name in self.topics), now_ms=1)
        if self.topic is not None:
            topics.put(self.topic, now_ms=1)
        if self.group is not None:
            groups.put(self.group, now_ms=1)
        if self.forbidden:
            groups.allow_reading("G", "T", False, now_ms=1)
        if self.consumer is not None:
            consumers.heartbeat(self.consumer, Member("client", CONNECTION, 0, OUR_VERSION, 0))
        quotas = Quotas(parse_quotas(self.quotas))
        for topic in ("T", "New"):
            exhaust(quotas.buckets(topic, "Other", None))
        return AdmissionTables(settings, topics, groups, consumers, self.access, quotas)


def exhaust(buckets: tuple[Any, ...]) -> None:
    assert quota_fault(buckets, NOW_MS) is None
    charge(buckets, 10_000, 10_000)


def rejected(code: int, remark: str, fields: Mapping[str, str] | None = None) -> Rejection:
    return Rejection(code, remark, fields)


def forbidden(kind: int, remark: str) -> Rejection:
    return Rejection(ResponseCode.NO_PERMISSION, remark, {"forbiddenType": str(kind)})


BUSY = rejected(
    ResponseCode.SYSTEM_BUSY,
    "[QUOTA]over quota of topic T: 5 messages/s allowed, 10000 messages/s in the last second; retry later",
)
SEND_FAULTS: list[tuple[Callable[[State], Any], Rejection]] = [
    (
        lambda state: state.config.update(accept_sends_from_ms=NOW_MS + 1),
        rejected(ResponseCode.SYSTEM_ERROR, "sends are accepted from 1000001 on"),
    ),
    (
        lambda state: (
            state.config.update(perm=NO_WRITE),
            setattr(state, "topic", replace(state.topic or TOPIC, order=True)),
        ),
        rejected(ResponseCode.NO_PERMISSION, "broker b does not accept messages (brokerPermission)"),
    ),
    (
        lambda state: setattr(state, "access", Denying(Action.PUBLISH)),
        rejected(ResponseCode.NO_PERMISSION, "None lacks Pub on T for G"),
    ),
    (lambda state: setattr(state, "quotas", "topic/T: 5 msg/s"), BUSY),
    (
        lambda state: setattr(state, "topic", None),
        rejected(ResponseCode.TOPIC_NOT_EXIST, "topic T does not exist, create it first"),
    ),
]
"""In the order in which they are checked."""


def send(state: State, root: Path, **given: Any) -> SendAdmission | Rejection:
    ask = SendAsk(**{"topic": "T", "group": "G", "connection": CONNECTION} | given)
    return admit_send(ask, state.tables(root), NOW_MS)


@pytest.mark.parametrize("number", range(len(SEND_FAULTS)))
def test_every_rejection_of_a_send_and_its_rank(tmp_path: Path, number: int) -> None:
    """Goal: alone each fault has its answer, and together with all later ones the same."""
    alone, together = State(), State()
    fault, expected = SEND_FAULTS[number]
    fault(alone)
    for later, _ in reversed(SEND_FAULTS[number:]):
        if number == 1 and later is SEND_FAULTS[-1][0]:
            continue  # only a topic that exists has an order
        later(together)
    assert send(alone, tmp_path) == expected
    assert send(together, tmp_path) == expected


def test_a_send_is_admitted_from_the_configured_time_on(tmp_path: Path) -> None:
    assert isinstance(send(State(config={"accept_sends_from_ms": NOW_MS}), tmp_path), SendAdmission)


def test_a_broker_that_may_not_be_written_rejects_ordered_topics_only(tmp_path: Path) -> None:
    """Goal: as Apache's; other topics are led away by their routes."""
    assert isinstance(send(State(config={"perm": NO_WRITE}), tmp_path), SendAdmission)


@pytest.mark.parametrize("topic", sorted(NOT_FOR_CLIENTS | {TIMER_TOPIC}))
def test_internal_topics_take_no_sends(tmp_path: Path, topic: str) -> None:
    assert send(State(topics=(topic,)), tmp_path, topic=topic) == rejected(
        ResponseCode.NO_PERMISSION, f"clients must not send to {topic}"
    )


@pytest.mark.parametrize("exists", [True, False])
def test_only_names_of_new_topics_are_checked(tmp_path: Path, exists: bool) -> None:
    found = send(State(topics=("a b",) if exists else ()), tmp_path, topic="a b")
    assert isinstance(found, SendAdmission if exists else Rejection)
    if isinstance(found, Rejection):
        assert found.code == ResponseCode.SYSTEM_ERROR
        assert "a b" in found.remark


@pytest.mark.parametrize("fault", [Denying(Action.PUBLISH), "topic/New: 5 msg/s"])
def test_a_rejected_send_makes_no_topic(tmp_path: Path, fault: Any) -> None:
    state = State(access=fault) if isinstance(fault, Denying) else State(quotas=fault)
    tables, made = state.tables(tmp_path), []

    def create() -> TopicConfig:
        made.append("New")
        return TopicConfig(topic="New")

    assert isinstance(admit_send(SendAsk("New", "G", CONNECTION), tables, NOW_MS, create), Rejection)
    assert not made


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("trace_on", [False, True])
def test_what_a_send_is_admitted_with(tmp_path: Path, traced: bool, trace_on: bool) -> None:
    """Goal: the larger number of queues, the topic's system flag, its quotas, and what is added, in this order."""
    state = State(
        config={"trace_on": trace_on},
        topic=replace(TOPIC, filter_type=TopicFilterType.MULTI_TAG),
        topics=(TRACE_TOPIC,) if traced else (),
        quotas="group/G: 1 MiB/s, 20000 msg/s; topic/Other: 1 msg/s",
    )
    found = send(state, tmp_path)
    assert isinstance(found, SendAdmission)
    assert (found.queue_count, found.sys_flag) == (4, SysFlag.MULTI_TAGS)
    assert [(bucket.name, bucket.unit) for bucket in found.quotas] == [("group G", "messages"), ("group G", "bytes")]
    traces = [("MSG_REGION", "R"), ("TRACE_ON", "true" if trace_on else "false")] if traced else []
    assert [*found.properties.items()] == [*traces, ("CLUSTER", "C")]


# pulls


def own(**given: Any) -> ConsumerData:
    model = given.pop("model", MessageModel.CLUSTERING)
    topic = given.pop("topic", "T")
    return ConsumerData(group="G", model=model, subscriptions=(Subscription(topic=topic, version=5),))


BROADCAST = own(model=MessageModel.BROADCASTING)
PULL_FAULTS: list[tuple[Callable[[State], Any], Rejection]] = [
    (
        lambda state: state.config.update(perm=NO_READ),
        forbidden(1, "broker b does not serve pulls (brokerPermission)"),
    ),
    (
        lambda state: setattr(state, "group", None),
        rejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "consumer group G does not exist"),
    ),
    (
        lambda state: setattr(state, "group", replace(state.group or GROUP, consume_enable=False)),
        forbidden(2, "consumer group G may not consume"),
    ),
    (
        lambda state: setattr(state, "topic", None),
        rejected(ResponseCode.TOPIC_NOT_EXIST, "topic T does not exist"),
    ),
    (
        lambda state: setattr(state, "topic", replace(state.topic or TOPIC, perm=NO_READ)),
        forbidden(3, "topic T may not be read"),
    ),
    (
        lambda state: setattr(state, "topic", replace(state.topic or TOPIC, read_queue_count=3)),
        rejected(ResponseCode.SYSTEM_ERROR, "queue 3 is outside topic T, which has 3 to read"),
    ),
    (lambda state: setattr(state, "forbidden", True), forbidden(5, "consumer group G may not read T")),
    (
        lambda state: setattr(state, "access", Denying(Action.SUBSCRIBE)),
        rejected(ResponseCode.NO_PERMISSION, "None lacks Sub on T for G"),
    ),
    (lambda state: setattr(state, "quotas", "topic/T: 5 msg/s"), BUSY),
    (
        lambda state: setattr(state, "consumer", None),
        rejected(ResponseCode.SUBSCRIPTION_NOT_EXIST, "no member of consumer group G has sent a heartbeat yet"),
    ),
    (
        lambda state: (
            setattr(state, "consumer", BROADCAST),
            setattr(state, "group", replace(state.group or GROUP, consume_broadcast_enable=False)),
        ),
        forbidden(4, "consumer group G may not consume as broadcast"),
    ),
    (
        lambda state: setattr(state, "consumer", own(topic="Other")),
        rejected(ResponseCode.SUBSCRIPTION_NOT_EXIST, "consumer group G does not subscribe to T"),
    ),
]
"""In the order in which they are checked; the last three only where the request brings no filter."""
ALONE = (1, 3, 9, 10, 11)
"""Group or topic do not exist, or the group has another subscription: the next fault cannot be there as well."""


def pull(state: State, root: Path, **given: Any) -> PullAdmission | Rejection:
    ask = PullAsk(**{"group": "G", "topic": "T", "connection": CONNECTION, "queue_id": 3, "version": 5} | given)
    return admit_pull(ask, state.tables(root), NOW_MS)


@pytest.mark.parametrize("number", range(len(PULL_FAULTS)))
def test_every_rejection_of_a_pull_and_its_rank(tmp_path: Path, number: int) -> None:
    """Goal: alone each fault has its answer, and together with the next one the same."""
    alone, together = State(consumer=own()), State(consumer=own())
    PULL_FAULTS[number][0](alone)
    for fault, _ in reversed(PULL_FAULTS[number : number + (1 if number in ALONE else 2)]):
        fault(together)
    assert pull(alone, tmp_path) == PULL_FAULTS[number][1]
    assert pull(together, tmp_path) == PULL_FAULTS[number][1]


@pytest.mark.parametrize("queue_id", [-1, 4])
def test_queues_outside_the_topic_are_rejected(tmp_path: Path, queue_id: int) -> None:
    found = pull(State(consumer=own()), tmp_path, queue_id=queue_id)
    assert found == rejected(ResponseCode.SYSTEM_ERROR, f"queue {queue_id} is outside topic T, which has 4 to read")


@pytest.mark.parametrize(("version", "admitted"), [(4, True), (5, True), (6, False)])
def test_the_known_subscription_must_be_as_new_as_the_request_says(
    tmp_path: Path, version: int, admitted: bool
) -> None:
    found = pull(State(consumer=own()), tmp_path, version=version)
    if admitted:
        assert isinstance(found, PullAdmission)
        assert found.subscription == Subscription(topic="T", version=5)
    else:
        assert found == rejected(
            ResponseCode.SUBSCRIPTION_NOT_LATEST, "the broker knows an older subscription of G to T"
        )


def test_a_pull_that_brings_its_filter_needs_no_members(tmp_path: Path) -> None:
    found = pull(State(quotas="group/G: 20000 msg/s"), tmp_path, carries_filter=True, version=9)
    assert isinstance(found, PullAdmission)
    assert (found.group.group, found.topic, found.subscription) == ("G", TOPIC, None)
    assert [bucket.name for bucket in found.quotas] == ["group G"]


def test_broadcasting_is_admitted_where_the_group_may(tmp_path: Path) -> None:
    assert isinstance(pull(State(consumer=BROADCAST), tmp_path), PullAdmission)


def test_an_unknown_group_is_made_by_the_slow_path_only(tmp_path: Path) -> None:
    tables = State(group=None).tables(tmp_path)
    made = GroupConfig(group="G")
    ask = PullAsk("G", "T", CONNECTION, carries_filter=True)
    assert isinstance(admit_pull(ask, tables, NOW_MS), Rejection)
    found = admit_pull(ask, tables, NOW_MS, lambda group: made)
    assert isinstance(found, PullAdmission)
    assert found.group is made
