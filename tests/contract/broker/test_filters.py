"""SQL92 subscriptions over loopback with raw frames: in requests, in heartbeats, held, retried, refused, kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator

import pytest

from rocketq.protocol.bodies.clients import CheckClient, ConsumerData, Heartbeat, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import PullFlag
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    Peer,
    connected,
    hold,
    make_topic,
    over_loopback,
    props,
    pull,
    records,
    send,
)

MakeCluster = Callable[..., EmbeddedCluster]
SQL = {"expressionType": "SQL92"}
FILTERING = {"enablePropertyFilter": "true"}
WITHOUT_FLAG = 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """One that filters by properties."""
    with EmbeddedCluster(settings=FILTERING) as cluster:
        yield cluster


async def fill(peer: Peer, topic: str, *values: str) -> None:
    """Messages whose property `a`, and whose body, is that."""
    for value in values:
        answer = await send(peer, topic, value.encode(), properties=props(TAGS="TagA", a=value))
        assert answer.code == 0


def bodies(answer: Command) -> list[str]:
    return [record.body.decode() for record in records(answer)]


def next_offset(answer: Command) -> int:
    return int(answer.ext_fields["nextBeginOffset"])


async def subscribe(
    peer: Peer, group: str, topic: str, expression: str, *, version: int = 1, kind: str = "SQL92"
) -> None:
    """A heartbeat of a consumer."""
    subscription = Subscription(topic=topic, expression=expression, expression_type=kind, version=version)
    data = Heartbeat(client_id="c", consumers=(ConsumerData(group=group, subscriptions=(subscription,)),))
    assert (await peer.ask(RequestCode.HEART_BEAT, body=data.encode())).code == 0


@over_loopback
async def test_a_condition_in_the_request_filters(cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: what matches comes, in order, and the next offset is behind all that was looked at."""
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "1", "7", "x", "9", "3")
        answer = await pull(peer, topic, subscription="a > 5", **SQL)
        assert (bodies(answer), next_offset(answer)) == (["7", "9"], 5)
        answer = await pull(peer, topic, subscription="TAGS = 'TagA' AND a IN ('x', '3')", **SQL)
        assert bodies(answer) == ["x", "3"]
        nothing = await pull(peer, topic, subscription="b IS NOT NULL", **SQL)
        assert (nothing.code, nothing.remark, next_offset(nothing)) == (20, "NO_MATCHED_MESSAGE", 5)


@over_loopback
async def test_a_condition_from_a_heartbeat_filters(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: the group's own condition counts; a newer one replaces it, an older one does not."""
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "1", "7")
        given = {"group": group, "sysFlag": WITHOUT_FLAG, "subscription": None, "subVersion": 5, **SQL}
        await subscribe(peer, group, topic, "a > 5", version=5)
        assert bodies(await pull(peer, topic, **given)) == ["7"]
        await subscribe(peer, group, topic, "a < 5", version=4)
        assert bodies(await pull(peer, topic, **given)) == ["7"]
        assert (await pull(peer, topic, **{**given, "subVersion": 6})).code == 25
        await subscribe(peer, group, topic, "a < 5", version=6)
        assert bodies(await pull(peer, topic, **{**given, "subVersion": 6})) == ["1"]


@over_loopback
async def test_tools_see_a_groups_condition(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: request 321 shows the condition beside the entries, `null` without one; entries do not judge it."""
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "1", "7")
        await subscribe(peer, group, topic, "a > 5", version=5)
        asked = {"topic": topic, "queueId": 0, "index": 0, "count": 10}
        answer = await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, {**asked, "consumerGroup": group})
        shown = json.loads(answer.body)
        assert json.loads(shown["filterData"])["expression"] == "a > 5"
        assert [entry["eval"] for entry in shown["queueData"]] == [True, True]
        answer = await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, {**asked, "consumerGroup": "nobody"})
        assert json.loads(answer.body)["filterData"] == "null"


@over_loopback
async def test_a_bad_condition_in_a_heartbeat_is_told_at_the_pull(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: 27, whatever was known before; the heartbeat itself is taken."""
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "7")
        given = {"group": group, "sysFlag": WITHOUT_FLAG, "subscription": None, **SQL}
        await subscribe(peer, group, topic, "a > 5", version=1)
        assert bodies(await pull(peer, topic, **given)) == ["7"]
        await subscribe(peer, group, topic, "a >", version=2)
        answer = await pull(peer, topic, **given)
        assert (answer.code, "'a >'" in (answer.remark or "")) == (27, True)
        await subscribe(peer, group, topic, "a >= 7", version=3)
        assert bodies(await pull(peer, topic, **given)) == ["7"]


@pytest.mark.parametrize(
    ("given", "code", "remark"),
    [
        ({"subscription": "a >", **SQL}, 23, "at character 4"),
        ({"subscription": "a ! 5", **SQL}, 23, "at character 3"),
        ({"subscription": "a > 'x'", **SQL}, 23, "at character 5"),
        ({"subscription": "", **SQL}, 23, "at character 1"),
        ({"subscription": None, **SQL}, 23, "at character 1"),
        ({"subscription": "(" * 20_000, **SQL}, 23, "longer"),
        ({"subscription": "NOT " * 500 + "a", **SQL}, 23, "nested"),
        ({"subscription": "x", "expressionType": "XPATH"}, 23, "XPATH"),
        ({"subscription": " || "}, 23, "no tag"),
    ],
)
def test_a_bad_expression_in_the_request_is_refused_with_its_place(
    cluster: EmbeddedCluster, topic: str, given: dict[str, str], code: int, remark: str
) -> None:
    """Goal: the client learns where; the connection goes on."""

    async def run() -> None:
        async with connected(cluster.broker_addr) as (peer,):
            await make_topic(peer, topic)
            answer = await pull(peer, topic, **given)
            assert answer.code == code
            assert remark in (answer.remark or "")
            assert (await pull(peer, topic)).code == 19

    asyncio.run(run())


async def check_client(peer: Peer, kind: str, expression: str) -> Command:
    subscription = Subscription(topic="t", expression=expression, expression_type=kind)
    body = CheckClient(client_id="c", group="g", subscription=subscription).encode()
    return await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=body)


@over_loopback
async def test_082_clients_may_ask_before(cluster: EmbeddedCluster, rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: 0 for what would be taken, 23 with the place for what not, 1 where properties are not filtered by."""
    async with connected(cluster.broker_addr, rocketq_cluster.broker_addr) as (filtering, plain):
        assert (await check_client(filtering, "SQL92", "a BETWEEN 1 AND 3")).code == 0
        bad = await check_client(filtering, "SQL92", "a BETWEEN 3 AND 1")
        assert (bad.code, "at character 11" in (bad.remark or "")) == (23, True)
        assert (await check_client(filtering, "XPATH", "a")).code == 23
        assert (await check_client(filtering, "TAG", "a || b")).code == 0
        assert (await check_client(plain, "SQL92", "a = 1")).code == 1
        assert (await check_client(plain, "SQL92", "a =")).code == 1
        assert (await check_client(plain, "TAG", "a")).code == 0


@over_loopback
async def test_without_the_setting_conditions_are_refused(
    rocketq_cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: 1 and the setting's name, from requests and from heartbeats; a bad one in a heartbeat is 27 as ever."""
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        await fill(peer, topic, "7")
        for expression in ("a > 5", "a >"):
            answer = await pull(peer, topic, subscription=expression, **SQL)
            assert (answer.code, "enablePropertyFilter" in (answer.remark or "")) == (1, True)
        given = {"group": group, "sysFlag": WITHOUT_FLAG, **SQL}
        await subscribe(peer, group, topic, "a > 5", version=1)
        assert (await pull(peer, topic, **given)).code == 1
        await subscribe(peer, group, topic, "a >", version=2)
        assert (await pull(peer, topic, **given)).code == 27


@over_loopback
async def test_a_held_pull_wakes_for_what_matches_only(cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: messages that do not match leave it waiting, the first that does is its answer."""
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "0")
        condition = "a > 5 AND a < 100"
        await hold(peer, topic, 0, subscription=condition, **SQL)  # compiled: the next pull is held before the sends
        held = hold(peer, topic, 1, subscription=condition, suspendTimeoutMillis=60_000, **SQL)
        await fill(peer, topic, "1", "no number", "200")
        assert not held.done()
        await fill(peer, topic, "50")
        answer = await asyncio.wait_for(held, 5)
        assert (bodies(answer), next_offset(answer)) == (["50"], 5)


@over_loopback
async def test_a_held_pull_passes_over_a_long_stretch_that_does_not_match(cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: a read looks at 800 messages at most; whoever waited behind more is answered to come back at once."""
    async with connected(*[cluster.broker_addr] * 2) as (consumer, producer):
        await fill(producer, topic, "0")
        held = hold(consumer, topic, 1, subscription="a = 'wanted'", suspendTimeoutMillis=60_000, **SQL)
        await consumer.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": 0})
        await asyncio.gather(*(fill(producer, topic, "1") for _ in range(2_000)), fill(producer, topic, "wanted"))
        offset, answers = 1, 0
        answer = await asyncio.wait_for(held, 5)
        while answer.code == 20:
            assert offset < next_offset(answer) <= offset + 2_001
            offset, answers = next_offset(answer), answers + 1
            answer = await asyncio.wait_for(
                hold(consumer, topic, offset, subscription="a = 'wanted'", suspendTimeoutMillis=60_000, **SQL), 5
            )
        assert bodies(answer) == ["wanted"]
        assert answers < 10


@over_loopback
async def test_a_pull_over_a_long_stretch_is_bounded(cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: 800 messages are looked at, then the client is told to come back behind them."""
    async with connected(cluster.broker_addr) as (peer,):
        await asyncio.gather(*(fill(peer, topic, "1") for _ in range(1_000)))
        await fill(peer, topic, "9")
        first = await pull(peer, topic, subscription="a > 5", **SQL)
        assert (first.code, next_offset(first)) == (20, 800)
        second = await pull(peer, topic, 800, subscription="a > 5", **SQL)
        assert (bodies(second), next_offset(second)) == (["9"], 1_001)


@over_loopback
async def test_retries_pass_by_the_condition_of_their_topic(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: with filterSupportRetry messages of a retry topic are judged as those of the topic they came from."""
    cluster = make_rocketq_cluster(settings={**FILTERING, "filterSupportRetry": "true"})
    retry = "%RETRY%again"
    async with connected(cluster.broker_addr) as (peer,):
        both = tuple(
            Subscription(topic=name, expression=text, expression_type="SQL92", version=1)
            for name, text in ((topic, "a > 5"), (retry, "TRUE"))
        )
        data = Heartbeat(client_id="c", consumers=(ConsumerData(group="again", subscriptions=both),))
        assert (await peer.ask(RequestCode.HEART_BEAT, body=data.encode())).code == 0
        for value, origin in (("1", topic), ("7", topic), ("2", "elsewhere")):
            properties = props(RETRY_TOPIC=origin, a=value)
            assert (await send(peer, retry, value.encode(), properties=properties)).code == 0
        answer = await pull(peer, retry, group="again", sysFlag=WITHOUT_FLAG, subVersion=1)
        assert bodies(answer) == ["7", "2"]


@over_loopback
async def test_conditions_outlive_the_broker(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: consumerFilter.json has Apache's shape; what it holds counts as dead until the group is back."""
    cluster = make_rocketq_cluster(settings=FILTERING)
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "7")
        await subscribe(peer, "kept", topic, "a > 5", version=3)
    cluster.restart_broker()
    path = cluster.store_dir() / "config" / "consumerFilter.json"
    (by_group,) = json.loads(path.read_text())["filterDataByTopic"].values()
    kept = by_group["groupFilterData"]["kept"]
    assert (by_group["topic"], kept["topic"], kept["consumerGroup"]) == (topic, topic, "kept")
    assert (kept["expression"], kept["expressionType"], kept["clientVersion"]) == ("a > 5", "SQL92", 3)
    assert kept["bloomFilterData"]["bitNum"] == 112
    assert len(kept["bloomFilterData"]["bitPos"]) == 3
    assert kept["dead"] is (kept["deadTime"] >= kept["bornTime"])
    filters = cluster.brokers[0].parts.pull.filters
    known = filters.get("kept", topic)
    assert known is not None
    assert known.is_dead
    async with connected(cluster.broker_addr) as (peer,):
        await subscribe(peer, "kept", topic, "a > 5", version=3)
        assert not known.is_dead
        assert bodies(await pull(peer, topic, group="kept", sysFlag=WITHOUT_FLAG, subVersion=3)) == ["7"]


@over_loopback
async def test_the_setting_can_be_changed_while_running(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: an operator turns it on without a restart; a commit rides on a filtered pull."""
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "7")
        assert (await pull(peer, topic, subscription="a > 5", **SQL)).code == 1
        changed = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enablePropertyFilter=true")
        assert changed.code == 0
        flags = int(PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)
        answer = await pull(peer, topic, subscription="a > 5", sysFlag=flags, commitOffset=1, **SQL)
        assert bodies(answer) == ["7"]
        asked = {"consumerGroup": "g", "topic": topic, "queueId": 0}
        assert (await peer.ask(RequestCode.QUERY_CONSUMER_OFFSET, asked)).ext_fields["offset"] == "1"
