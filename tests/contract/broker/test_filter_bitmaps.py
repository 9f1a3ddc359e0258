"""Bitmaps of conditions beside queue entries, over loopback: the same deliveries with and without, whatever comes in
between, and really fewer looks at records."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator

import pytest

from rocketq.filter import BloomGeometry, compile_sql
from rocketq.protocol.codes import RequestCode
from rocketq.store import Store
from rocketq.store.queue_extensions import Extension, is_address
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import Peer, connected, make_topic, over_loopback, props, pull, records, send
from tests.contract.broker.test_filters import FILTERING, SQL, WITHOUT_FLAG, bodies, fill, next_offset, subscribe

MakeCluster = Callable[..., EmbeddedCluster]
BITMAPS = {**FILTERING, "enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}
VALUES = ("1", "5", "7", "6.5", "abc", "true", "", "2147483648")
CONDITIONS = (
    *("a > 5", "a <= 5.0", "a = 'abc'", "a IS NULL", "NOT (a = '7')", "a BETWEEN 1 AND 6", "a IN ('5', 'abc')"),
    *("a > 5 OR TAGS = 'B'", "TAGS = 'A' AND a < 7", "a = TRUE", "a IS NOT NULL", "b = '1'", "NOT ('7' = a)"),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """One that keeps bitmaps."""
    with EmbeddedCluster(settings=BITMAPS) as cluster:
        yield cluster


def store_of(cluster: EmbeddedCluster) -> Store:
    return cluster.brokers[0].parts.store


def extensions(cluster: EmbeddedCluster, topic: str) -> list[Extension | None]:
    """What stands beside each entry of queue 0; None where there is a plain tags code."""
    queue = store_of(cluster).queues.get(topic, 0)
    assert queue is not None
    found = []
    for offset in range(queue.min_offset, queue.end_offset):
        unit = queue.unit(offset)
        assert unit is not None
        assert queue.extensions is not None
        found.append(queue.extensions.get(unit[2]) if is_address(unit[2]) else None)
    return found


async def deliveries(peer: Peer, topic: str, group: str, version: int) -> list[str]:
    """All that a group gets, as its clients pull it."""
    found: list[str] = []
    offset = 0
    while True:
        given = {"group": group, "sysFlag": WITHOUT_FLAG, "subscription": None, "subVersion": version}
        answer = await pull(peer, topic, offset, maxMsgNums=3, **given, **SQL)
        if answer.code not in (0, 20):
            return found
        found += [record.body.decode() for record in records(answer)] if answer.code == 0 else []
        assert next_offset(answer) > offset
        offset = next_offset(answer)


class Script:
    """A random course of messages, subscriptions, departures and pulls; the same for every broker it is played to."""

    def __init__(self, seed: int, topic: str) -> None:
        self._rng, self._topic = random.Random(seed), topic
        self._version = 0
        self._known: dict[str, int] = {}
        self._sent = 0
        self.heard: list[tuple[str, list[str]]] = []

    async def play(self, addr: str, steps: int) -> None:
        async with connected(addr, addr) as (peer, consumer):
            for _ in range(steps):
                await self._step(peer, consumer)
            for group in sorted(self._known):
                self.heard.append((group, await deliveries(consumer, self._topic, group, self._known[group])))

    async def _step(self, peer: Peer, consumer: Peer) -> None:
        kind = self._rng.choice(("send", "send", "send", "send", "subscribe", "leave", "pull"))
        group = self._rng.choice(("g1", "g2", "g3", "g4"))
        if kind == "send":
            for _ in range(self._rng.randrange(1, 12)):
                await self._send(peer)
        elif kind == "subscribe":
            self._version += 1
            await subscribe(consumer, group, self._topic, self._rng.choice(CONDITIONS), version=self._version)
            self._known[group] = self._version
        elif kind == "leave" and group in self._known:
            fields = {"clientID": "c", "consumerGroup": group}
            assert (await consumer.ask(RequestCode.UNREGISTER_CLIENT, fields)).code == 0
            condition = self._rng.choice((None, *CONDITIONS))
            if condition is not None:  # it is back with another one, and otherwise later, or never
                self._version += 1
                await subscribe(consumer, group, self._topic, condition, version=self._version)
                self._known[group] = self._version
            else:
                del self._known[group]
        elif kind == "pull" and group in self._known:
            self.heard.append((group, await deliveries(consumer, self._topic, group, self._known[group])))

    async def _send(self, peer: Peer) -> None:
        self._sent += 1
        given = props(TAGS=self._rng.choice("AB"), a=self._rng.choice(VALUES), n=str(self._sent))
        body = f"{self._sent}".encode()
        if self._rng.random() < 0.5:  # through the kernel, and with a property that it leaves to others
            given += props(DELAY="0")
        assert (await send(peer, self._topic, body, properties=given)).code == 0


@pytest.mark.parametrize("seed", range(6))
def test_deliveries_are_the_same_with_and_without_bitmaps(
    cluster: EmbeddedCluster, topic: str, make_rocketq_cluster: MakeCluster, seed: int
) -> None:
    """Goal: groups come, go, return and change their minds between messages; nobody gets more or less."""
    plain = make_rocketq_cluster(settings=FILTERING)
    heard = []
    for each in (cluster, plain):

        async def run(addr: str, script: Script) -> None:
            async with connected(addr) as (peer,):
                await make_topic(peer, topic, queues=1)
            await script.play(addr, 60)

        script = Script(seed, topic)
        asyncio.run(run(each.broker_addr, script))
        heard.append(script.heard)
        for group in ("g1", "g2", "g3", "g4"):
            each.brokers[0].parts.pull.filters.unregister(group, 0)
    assert heard[0] == heard[1]
    assert sum(len(found) for _, found in heard[0]) > 50
    kept = extensions(cluster, topic)
    assert None not in kept
    assert len([unit for unit in kept if unit is not None and unit.bitmap]) > 30


@over_loopback
async def test_bitmaps_say_who_wants_a_message(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: bits of the groups that match; an empty bitmap when none does, none at all before anybody asked."""
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "7")
        await subscribe(peer, group, topic, "a > 5")
        await subscribe(peer, f"{group}2", topic, "a < 9")
        await fill(peer, topic, "7", "2", "x")
        geometry = BloomGeometry.of()
        first, second = geometry.positions(group, topic), geometry.positions(f"{group}2", topic)
        found = [unit.bitmap for unit in extensions(cluster, topic) if unit is not None]
        assert found == [b"", geometry.bitmap([first, second]), geometry.bitmap([second]), bytes(14)]


@over_loopback
async def test_a_message_that_its_bitmap_rules_out_is_not_looked_at(
    cluster: EmbeddedCluster, topic: str, group: str
) -> None:
    """Goal: the check is alive: with a bitmap made empty by hand a message that matches stays away, but only from pulls
    by the group's own condition, and only from groups that were there before it."""
    async with connected(cluster.broker_addr) as (peer,):
        await subscribe(peer, group, topic, "a > 5", version=1)
        await asyncio.sleep(0.01)  # messages of the same millisecond are not judged by their bitmaps
        await fill(peer, topic, "7", "8")
        queue = store_of(cluster).queues.get(topic, 0)
        assert queue is not None
        assert queue.extensions is not None
        path = queue.extensions.files.path_of(0)
        with path.open("r+b") as file:
            file.seek(20)
            file.write(bytes(14))
        given = {"group": group, "sysFlag": WITHOUT_FLAG, "subscription": None, "subVersion": 1, **SQL}
        assert bodies(await pull(peer, topic, **given)) == ["8"]
        assert bodies(await pull(peer, topic, group=group, subscription="a > 5", **SQL)) == ["7", "8"]
        await subscribe(peer, group, topic, "a > 5.0", version=2)
        assert bodies(await pull(peer, topic, **{**given, "subVersion": 2})) == ["7", "8"]


@over_loopback
async def test_tags_are_compared_inside_extensions(cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: pulls by tags, answered by the kernel or not, and held ones, see the tag behind the address."""
    async with connected(cluster.broker_addr) as (peer,):
        for number, tag in enumerate("ABAB"):
            await send(peer, topic, b"%d" % number, properties=props(TAGS=tag))
        for _ in range(3):
            assert bodies(await pull(peer, topic, subscription="B")) == ["1", "3"]
        assert bodies(await pull(peer, topic, subscription="*")) == ["0", "1", "2", "3"]
        assert (await pull(peer, topic, subscription="C")).code == 20


@over_loopback
async def test_tools_see_extensions(cluster: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: request 321 shows what an entry's extension holds, and whether the group may get the message."""
    async with connected(cluster.broker_addr) as (peer,):
        await subscribe(peer, group, topic, "a > 5", version=1)
        await asyncio.sleep(0.01)
        await fill(peer, topic, "1", "7")
        asked = {"topic": topic, "queueId": 0, "index": 0, "count": 10, "consumerGroup": group}
        shown = json.loads((await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, asked)).body)["queueData"]
        assert [entry["eval"] for entry in shown] == [False, True]
        assert shown[0]["bitMap"] == "0" * 48 + "\n" + "0" * 64 + "\n"
        bits = shown[1]["bitMap"].replace("\n", "")[::-1]
        assert {at for at, bit in enumerate(bits) if bit == "1"} == set(BloomGeometry.of().positions(group, topic))
        assert json.loads(shown[1]["extendDataJson"])["size"] == 34


@over_loopback
async def test_bitmaps_outlive_the_broker(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: after a restart with the option off, and one with it on again, deliveries are as before; what came while
    the group was away is judged for it too."""
    cluster = make_rocketq_cluster(settings=BITMAPS)
    async with connected(cluster.broker_addr) as (peer,):
        await subscribe(peer, "kept", topic, "a > 5", version=3)
        await asyncio.sleep(0.01)
        await fill(peer, topic, "1", "7")
    await asyncio.to_thread(cluster.restart_broker)
    async with connected(cluster.broker_addr) as (peer,):
        await fill(peer, topic, "2", "8")
        assert [bool(unit and any(unit.bitmap)) for unit in extensions(cluster, topic)] == [False, True, False, True]
        await subscribe(peer, "kept", topic, "a > 5", version=3)
        assert await deliveries(peer, topic, "kept", 3) == ["7", "8"]


@over_loopback
async def test_bitmaps_are_switched_on_and_off_while_running(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: enableCalcFilterBitMap counts at once; the files themselves need a restart, and say so."""
    cluster = make_rocketq_cluster(settings={**BITMAPS, "enableCalcFilterBitMap": "false"})
    async with connected(cluster.broker_addr) as (peer,):
        await subscribe(peer, "g", topic, "a > 5", version=1)
        await fill(peer, topic, "7")
        assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enableCalcFilterBitMap=true")).code == 0
        await fill(peer, topic, "8")
        assert [len(unit.bitmap) for unit in extensions(cluster, topic) if unit is not None] == [0, 14]
        refused = await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=b"enableConsumeQueueExt=false")
        assert (refused.code, "enableConsumeQueueExt" in (refused.remark or "")) == (16, True)
        assert await deliveries(peer, topic, "g", 1) == ["7", "8"]


def test_the_conditions_of_the_script_are_sound() -> None:
    """Goal: none of them is refused, which would make the comparison an empty one."""
    assert all(compile_sql(condition) is not None for condition in CONDITIONS)
