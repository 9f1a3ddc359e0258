"""The route table, with links that are plain texts and a clock that is a number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rocketq.nameserver.route_table import LIFE_MS, Master, Registration, RouteTable
from rocketq.nameserver.route_views import (
    all_topics,
    cluster_table,
    cluster_topics,
    member_group,
    system_topics,
    topic_route,
    unit_sub_only_topics,
    unit_sub_topics,
    unit_topics,
)
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.bodies.routes import QueueData
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable


def topics(*names: str, version: int = 1, state: int | None = None, **members: Any) -> TopicConfigTable:
    return TopicConfigTable(
        data_version=DataVersion(counter=version, timestamp_ms=version, state_version=state),
        topics={name: TopicConfig(topic=name, **members) for name in names},
    )


def broker(name: str = "a", broker_id: int = 0, addr: str | None = None, **members: Any) -> Registration:
    members = {"cluster": "C", "ha_addr": f"{name}{broker_id}:ha", "topics": topics("T"), **members}
    return Registration(broker_name=name, broker_id=broker_id, addr=addr or f"{name}{broker_id}:1", **members)


def table_of(*brokers: Registration) -> RouteTable:
    table = RouteTable()
    for one in brokers:
        table.register(one, f"link of {one.addr}", 0)
    return table


def addrs(table: RouteTable, topic: str = "T") -> dict[str, dict[int, str]]:
    route = topic_route(table, topic)
    return {} if route is None else {data.broker_name: data.addrs for data in route.brokers}


def perm(table: RouteTable, topic: str = "T", name: str = "a") -> int:
    return table.topics[topic][name].perm


def test_a_master_makes_its_topics_routable_and_a_slave_only_adds_its_address() -> None:
    table = table_of(broker(topics=topics("T", read_queue_count=4, write_queue_count=4)))
    told = table.register(broker("a", 1, topics=topics("T", "X", version=9, read_queue_count=1)), "link", 0)
    assert told == Master("a0:1", "a0:ha")
    assert addrs(table) == {"a": {0: "a0:1", 1: "a1:1"}}
    assert table.topics["T"]["a"].read_queue_count == 4
    assert topic_route(table, "X") is None


def test_a_slave_without_a_master_is_told_nothing() -> None:
    table = RouteTable()
    assert table.register(broker("a", 1), "link", 0) is None
    assert all_topics(table).topics == ()


def test_an_address_has_one_id() -> None:
    """Goal: a slave that became master is not listed twice."""
    table = table_of(broker(), broker("a", 1))
    table.unregister("a", 0, "a0:1")
    table.register(broker("a", 0, addr="a1:1"), "link", 0)
    assert addrs(table) == {"a": {0: "a1:1"}}


def test_a_topic_no_longer_listed_stays_until_it_is_deleted() -> None:
    table = table_of(broker(topics=topics("T", "X")))
    table.register(broker(topics=topics("T", version=2)), "link", 1)
    assert all_topics(table).topics == ("T", "X")
    table.forget_topic("X")
    assert all_topics(table).topics == ("T",)


def test_a_deleted_topic_comes_back_only_with_a_newer_version() -> None:
    table = table_of(broker())
    table.forget_topic("T")
    table.register(broker(), "link", 1)
    assert topic_route(table, "T") is None
    table.register(broker(topics=topics("T", version=2)), "link", 2)
    assert topic_route(table, "T") is not None


def test_a_registration_of_one_topic_does_not_hide_the_others() -> None:
    """Goal: the trap of a restarted NameServer that first hears of one topic, under the version of all."""
    table = table_of(broker(topics=topics("New", version=5)))
    table.register(broker(topics=topics("New", "Old", version=5)), "link", 1)
    assert all_topics(table).topics == ("New", "Old")


def test_a_topic_is_deleted_in_one_cluster_or_in_all() -> None:
    table = table_of(broker("a"), broker("b", cluster="D"))
    table.forget_topic("T", "D")
    assert list(addrs(table)) == ["a"]
    table.forget_topic("T", "nowhere")
    assert list(addrs(table)) == ["a"]


def test_a_wiped_permission_lasts_until_the_topics_change() -> None:
    table = table_of(broker(topics=topics("T", "X", perm=7)), broker("b"))
    assert table.wipe_write_perm("a") == 2
    assert table.wipe_write_perm("unknown") == 0
    assert (perm(table), perm(table, name="b")) == (5, 6)
    table.register(broker(topics=topics("T", "X", perm=7)), "link", 1)
    assert perm(table) == 5
    table.register(broker(topics=topics("T", "X", perm=7, version=2)), "link", 2)
    assert perm(table) == 7
    table.wipe_write_perm("a")
    assert table.add_write_perm("a") == 2
    assert perm(table) == 6


def test_a_broker_that_goes_while_it_registers_stays_away() -> None:
    """Goal: topics are taken in steps; none of a broker that is gone meanwhile stays behind."""
    table = RouteTable()
    steps = table.register_steps(broker(topics=topics("T", "U", "V")), "link", 0)
    next(steps)
    assert list(addrs(table)) == ["a"]
    table.disconnect("link")
    assert list(steps) == []
    assert all_topics(table).topics == ()
    assert topic_route(table, "U") is None


def test_the_last_address_takes_queues_topics_and_cluster_along() -> None:
    table = table_of(broker(), broker("a", 1), broker("b", topics=topics("T", "B"), cluster="D"))
    table.unregister("a", 0, "a0:1")
    assert addrs(table) == {"a": {1: "a1:1"}, "b": {0: "b0:1"}}
    table.unregister("b", 0, "b0:1")
    assert cluster_table(table).clusters == {"C": ("a",)}
    assert all_topics(table).topics == ("T",)
    table.unregister("a", 1, "a1:1")
    assert (table.brokers, table.topics, table.live) == ({}, {}, {})


def test_a_goodbye_of_another_address_changes_nothing() -> None:
    table = table_of(broker())
    table.unregister("a", 0, "other:1")
    table.unregister("a", 3, "a0:1")
    table.unregister("unknown", 0, "a0:1")
    assert addrs(table) == {"a": {0: "a0:1"}}


def test_a_lost_connection_removes_the_brokers_last_heard_of_over_it() -> None:
    table = RouteTable()
    table.register(broker("a"), "first", 0)
    table.register(broker("b"), "first", 0)
    table.register(broker("a"), "second", 1)  # a came back over another connection before the first was noticed
    assert table.disconnect("first") == ["b0:1"]
    assert addrs(table) == {"a": {0: "a0:1"}}
    assert table.disconnect("unknown") == []


def test_silence_removes_after_120_seconds() -> None:
    table = RouteTable()
    table.register(broker("a"), "link a", 0)
    table.register(broker("b", life_ms=10_000), "link b", 0)
    assert table.expire(10_000) == []
    assert table.expire(10_001) == ["link b"]
    assert table.heartbeat("a", "a0:1", 100_000)
    assert not table.heartbeat("b", "b0:1", 100_000)
    assert table.expire(100_000 + LIFE_MS) == []
    assert table.expire(100_001 + LIFE_MS) == ["link a"]
    assert topic_route(table, "T") is None


def test_an_address_that_was_replaced_expires_without_a_trace() -> None:
    table = table_of(broker(addr="old:1"))
    table.register(broker(addr="new:1"), "link", LIFE_MS)
    assert table.expire(LIFE_MS + 1) == ["link of old:1"]
    assert addrs(table) == {"a": {0: "new:1"}}


def test_a_master_of_yesterday_does_not_take_its_place_back() -> None:
    """Goal: a larger stateVersion wins the broker id."""
    table = table_of(broker(addr="new:1", topics=topics("T", state=2)))
    table.register(broker(addr="old:1", topics=topics("T", state=1, version=9)), "link", 1)
    assert addrs(table) == {"a": {0: "new:1"}}
    table.register(broker(addr="newest:1", topics=topics("T", state=3)), "link", 2)
    assert addrs(table) == {"a": {0: "newest:1"}}


def test_lists_of_topics() -> None:
    table = table_of(
        broker("a", topics=topics("U", topic_sys_flag=1)),
        broker("b", cluster="D", topics=topics("S", topic_sys_flag=2)),
        broker("c", cluster="D", topics=topics("Both", topic_sys_flag=3)),
    )
    assert all_topics(table).topics == ("Both", "S", "U")
    assert cluster_topics(table, "D").topics == ("Both", "S")
    assert cluster_topics(table, "unknown").topics == ()
    assert set(system_topics(table).topics) == {"C", "a", "D", "b", "c"}
    assert system_topics(table).broker_addr == "a0:1"
    assert unit_topics(table).topics == ("Both", "U")
    assert unit_sub_topics(table).topics == ("Both", "S")
    assert unit_sub_only_topics(table).topics == ("S",)


def test_filter_servers_are_kept_and_told() -> None:
    table = table_of(broker(filter_servers=("f:1", "f:2")), broker("b"))
    route = topic_route(table, "T", "a:4")
    assert route is not None
    assert route.filter_servers == {"a0:1": ("f:1", "f:2")}
    assert route.order_config == "a:4"


def test_members_of_a_broker_name() -> None:
    table = table_of(broker(), broker("a", 1))
    assert member_group(table, "C", "a").addrs == {0: "a0:1", 1: "a1:1"}
    assert member_group(table, "C", "unknown").addrs == {}


def test_a_topic_can_be_added_for_known_brokers_only() -> None:
    table = table_of(broker())
    table.add_topic("X", [QueueData(broker_name="a", perm=6), QueueData(broker_name="unknown", perm=6)])
    assert addrs(table, "X") == {"a": {0: "a0:1"}}
    table.add_topic("Y", [QueueData(broker_name="unknown")])
    assert topic_route(table, "Y") is None


@pytest.mark.parametrize(
    "version", [DataVersion(counter=1, timestamp_ms=1), DataVersion(counter=1, timestamp_ms=1, state_version=0)]
)
def test_a_version_without_a_state_equals_state_0(version: DataVersion) -> None:
    table = table_of(broker())
    table.wipe_write_perm("a")
    table.register(broker(topics=TopicConfigTable(data_version=version, topics=topics("T").topics)), "link", 1)
    assert perm(table) == 4


NAMES = st.sampled_from(["a", "b"])
IDS = st.integers(0, 2)
STATES = st.sampled_from([None, 0, 1, 2])
PLACES = st.sampled_from(["x:1", "y:1", "z:1"])


class AnyHistory(RuleBasedStateMachine):
    """Goal: whatever happens in whatever order, every route has a living broker and nothing is left over."""

    def __init__(self) -> None:
        super().__init__()
        self.table = RouteTable()
        self.now_ms = 0

    @rule(name=NAMES, broker_id=IDS, addr=PLACES, version=st.integers(1, 3), state=STATES, link=st.integers(0, 3))
    def register(self, name: str, broker_id: int, addr: str, version: int, state: int | None, link: int) -> None:
        listed = topics("T", name, version=version, state=state)
        self.table.register(broker(name, broker_id, addr, topics=listed), link, self.now_ms)

    @rule(name=NAMES, broker_id=IDS, addr=PLACES)
    def unregister(self, name: str, broker_id: int, addr: str) -> None:
        self.table.unregister(name, broker_id, addr)

    @rule(link=st.integers(0, 3))
    def disconnect(self, link: int) -> None:
        self.table.disconnect(link)

    @rule(span_ms=st.integers(0, 2 * LIFE_MS))
    def expire(self, span_ms: int) -> None:
        self.now_ms += span_ms
        self.table.expire(self.now_ms)

    @rule(topic=st.sampled_from(["T", "a", "b"]), cluster=st.sampled_from([None, "C", "D"]))
    def forget(self, topic: str, cluster: str | None) -> None:
        self.table.forget_topic(topic, cluster)

    @rule(name=NAMES)
    def wipe(self, name: str) -> None:
        self.table.wipe_write_perm(name)

    @invariant()
    def every_topic_has_a_living_broker(self) -> None:
        for queues in self.table.topics.values():
            assert queues
            assert queues.keys() <= self.table.brokers.keys()

    @invariant()
    def every_address_is_alive_and_has_one_id(self) -> None:
        for name, one in self.table.brokers.items():
            assert one.addrs
            assert len(set(one.addrs.values())) == len(one.addrs)
            assert all((name, addr) in self.table.live for addr in one.addrs.values())


TestAnyHistory = AnyHistory.TestCase
TestAnyHistory.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
