"""Groups whose members want different things, and where new groups start: over loopback, raw frames."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from rocketq.client import Admin
from rocketq.protocol.bodies.clients import ConsumerConnections
from rocketq.protocol.codes import RequestCode
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import Peer, beat, connected, heartbeat, over_loopback, send

MakeCluster = Callable[..., EmbeddedCluster]


async def conflicts(peer: Peer, group: str) -> dict[str, tuple[str, ...]] | None:
    answer = await peer.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": group})
    assert answer.code == 0
    return ConsumerConnections.decode(answer.body).conflicts


@over_loopback
async def test_members_that_want_different_things_are_seen_and_logged_once(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 3) as (first, second, third):
        await heartbeat(first, "a", group, topic=topic, expression="x || y")
        await heartbeat(second, "b", group, topic=topic, expression="y||x")
        assert await conflicts(first, group) is None
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                await heartbeat(third, "c", group, topic=topic, expression="z")
                await heartbeat(first, "a", group, topic=topic, expression="x || y")
        told = [each.getMessage() for each in caplog.records if group in each.getMessage()]
        assert len(told) == 1
        assert "x || y against z" in told[0]
        assert await conflicts(first, group) == {topic: ("x || y", "z")}
        await third.close()
        await heartbeat(first, "a", group, topic=topic, expression="x || y")
        assert await conflicts(first, group) is None


@over_loopback
async def test_a_strict_group_refuses_who_wants_something_else(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: the others and the client's other groups are not disturbed; who agrees comes in."""
    with Admin(rocketq_cluster.name_server_addr) as admin:
        (config,) = admin.groups.set(group, strict=True).values()
        assert config.is_strict
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (first, second):
        await heartbeat(first, "a", group, topic=topic, expression="x")
        for _ in range(2):
            answer = await second.ask(
                RequestCode.HEART_BEAT, body=beat("b", group, f"{group}-other", topic=topic, expression="*")
            )
            assert (answer.code, "x" in (answer.remark or "")) == (16, True)
        members = await first.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
        assert members.body == b'{"consumerIdList":["a"]}'
        assert await conflicts(first, f"{group}-other") is None
        await heartbeat(second, "b", group, topic=topic, expression="x")
        assert await conflicts(first, group) is None
    with Admin(rocketq_cluster.name_server_addr) as admin:
        (config,) = admin.groups.set(group, strict=False).values()
        assert not config.is_strict


@over_loopback
async def test_a_new_group_starts_where_it_says_when_the_young_topic_rule_is_off(
    make_rocketq_cluster: MakeCluster, topic: str, group: str
) -> None:
    """Goal: 22, so that the client decides by consumeFromWhere; also when the offsets and their backup are gone."""
    cluster = make_rocketq_cluster(settings={"youngTopicRule": "false"})
    fields = {"consumerGroup": group, "topic": topic, "queueId": 0}
    async with connected(cluster.broker_addr) as (peer,):
        await send(peer, topic)
        assert (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)).code == 22
        assert (await peer.ask(RequestCode.UPDATE_CONSUMER_OFFSET, {**fields, "commitOffset": 1})).code == 0
        assert (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)).ext_fields["offset"] == "1"
    cluster.stop_broker()
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (cluster.store_dir() / "config" / name).unlink(missing_ok=True)
    cluster.start_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, fields)).code == 22
