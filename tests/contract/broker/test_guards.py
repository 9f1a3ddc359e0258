"""Guards over loopback: asked once for what the fast path executes, and again after every change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketq.broker import Broker
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.config_text import format_config
from rocketq.protocol.messages import BatchElement, encode_batch
from rocketq.remoting import Connection
from tests.contract.broker.kit import (
    ONEWAY,
    Peer,
    connected,
    heartbeat,
    letters,
    make_topic,
    over_loopback,
    pull_fields,
    running_broker,
    send_fields,
    vip_addr,
)

SEND, BATCH, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE
COUNT = 20


class Guard:
    """Counts what it is asked about, by connection, code, topic and group; rejects what it is told to."""

    def __init__(self, rejects: Callable[[Command], bool] = lambda request: False) -> None:
        self.asked: Counter[tuple[Any, ...]] = Counter()
        self.rejects = rejects

    def __call__(self, request: Command, connection: Connection) -> Command | None:
        fields = request.ext_fields
        topic, group = fields.get("b") or fields.get("topic"), fields.get("a") or fields.get("consumerGroup")
        self.asked[connection.peer_port, int(request.code), topic, group] += 1
        return request.answer(16, remark="rejected by a guard") if self.rejects(request) else None

    def count(self) -> dict[tuple[int, str | None, str | None], list[int]]:
        """How often it was asked, for each connection, since the last call."""
        counts: dict[tuple[int, str | None, str | None], list[int]] = {}
        for (_, *what), times in sorted(self.asked.items(), key=lambda item: item[0][0]):
            counts.setdefault(tuple(what), []).append(times)  # type: ignore[arg-type]
        self.asked.clear()
        return counts


def sends(peer: Peer, topic: str = "T", count: int = COUNT, **given: Any) -> list[Command]:
    members = {name: given.pop(name) for name in ("form", "flag") if name in given}
    return [peer.request(SEND, letters(send_fields(topic, **given)), b"body", **members) for _ in range(count)]


def batches(peer: Peer, topic: str = "T", count: int = COUNT) -> list[Command]:
    body = encode_batch(BatchElement(body=b"%d" % number, properties=b"") for number in range(3))
    return [peer.request(BATCH, letters(send_fields(topic, batch="true")), body) for _ in range(count)]


def pulls(peer: Peer, topic: str = "T", count: int = COUNT, **given: Any) -> list[Command]:
    return [peer.request(PULL, pull_fields(topic, **given)) for _ in range(count)]


def stored(broker: Broker, topic: str = "T") -> int:
    return sum(broker.parts.store.end_offset(topic, queue_id) for queue_id in range(4))


async def prepare(peer: Peer, *topics: str) -> None:
    """Topics with messages in their first queue, and groups that pull them."""
    for topic in topics:
        await make_topic(peer, topic, queues=1)
        for _ in range(3):
            assert await codes_of(peer, *sends(peer, topic, 1)) == [0]
    await codes_of(peer, *pulls(peer, topics[0], 1), *pulls(peer, topics[0], 1, group="g2"))


async def codes_of(peer: Peer, *requests: Command) -> list[int]:
    return [answer.code for answer in await peer.ask_together(*requests)]


@over_loopback
async def test_a_guard_is_asked_once_for_what_the_fast_path_executes(tmp_path: Path) -> None:
    """Goal: once for each connection, code, topic and group; every time for anything else; and the fast path works."""
    async with running_broker(tmp_path) as broker, connected(broker.addr, broker.addr) as (one, other):
        await prepare(one, "T", "U")
        guard = Guard()
        broker.guards.append(guard)
        fast = broker.fast_paths[0]
        before, pulls_before = fast.taken, fast.pulls_taken
        for peer in (one, other):
            for requests in (
                sends(peer), sends(peer), sends(peer, "U"), sends(peer, producerGroup="p2"), batches(peer),
                pulls(peer), pulls(peer, group="g2"), sends(peer, form=HeaderForm.BINARY),
            ):  # fmt: skip
                assert await codes_of(peer, *requests) == [0] * COUNT
        assert guard.count() == {
            (SEND, "T", "p"): [1, 1],
            (SEND, "U", "p"): [1, 1],
            (SEND, "T", "p2"): [1, 1],
            (BATCH, "T", "p"): [1, 1],
            (PULL, "T", "g"): [1, 1],
            (PULL, "T", "g2"): [1, 1],
        }
        assert fast.taken - before == 2 * (5 * COUNT + 3 * COUNT)
        assert fast.pulls_taken - pulls_before == 2 * 2 * COUNT
        slow = [one.request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}) for _ in range(3)]
        assert await codes_of(one, *slow, *sends(one, properties="wide\x01é", count=2)) == [0] * 5
        assert guard.count() == {(RequestCode.GET_MAX_OFFSET, "T", None): [3], (SEND, "T", "p"): [2]}
        new = [*sends(one, "New", 1), *pulls(one, group="new", count=1), *pulls(one, "Unheard", 1)]
        assert await codes_of(one, *new) == [0, 0, 17]
        assert guard.count() == {(SEND, "New", "p"): [1], (PULL, "T", "new"): [1], (PULL, "Unheard", "g"): [1]}


CHANGES: dict[str, Callable[[Broker, Peer], Any]] = {
    "invalidate": lambda broker, peer: broker.invalidate_grants(),
    "another guard": lambda broker, peer: broker.guards.append(lambda request, connection: None),
    "a guard less": lambda broker, peer: broker.guards.pop(),
    "topic": lambda broker, peer: make_topic(peer, "Another"),
    "group": lambda broker, peer: peer.ask(
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=b'{"groupName":"another"}'
    ),
    "setting": lambda broker, peer: peer.ask(
        RequestCode.UPDATE_BROKER_CONFIG, body=format_config({"regionId": "elsewhere"}).encode()
    ),
    "heartbeat": lambda broker, peer: heartbeat(peer, "client", "another", topic="T"),
    "check": lambda broker, peer: broker._dispatchers[0].checks.append(lambda request, connection: None),
}


@pytest.mark.parametrize("change", CHANGES)
@over_loopback
async def test_a_guard_is_asked_again_after_every_change(tmp_path: Path, change: str) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T")
        guard = Guard()
        broker.guards.append(guard)
        broker.guards.append(lambda request, connection: None)
        for _ in range(2):
            await codes_of(peer, *sends(peer), *pulls(peer))
        guard.count()
        await codes_of(peer, *sends(peer), *pulls(peer))
        assert not guard.count()
        if (waiting := CHANGES[change](broker, peer)) is not None and hasattr(waiting, "__await__"):
            await waiting
        guard.count()
        before = broker.fast_paths[0].taken
        assert await codes_of(peer, *sends(peer), *pulls(peer)) == [0] * 2 * COUNT
        assert guard.count() == {(SEND, "T", "p"): [1], (PULL, "T", "g"): [1]}
        assert broker.fast_paths[0].taken - before == COUNT


@over_loopback
async def test_what_a_guard_rejects_is_not_executed_at_either_port(tmp_path: Path) -> None:
    """Goal: nothing is stored or given, every request is answered, and a oneway one is not."""
    async with running_broker(tmp_path) as broker, connected(broker.addr, vip_addr(broker)) as peers:
        await prepare(peers[0], "T", "U")
        rejected = Guard(lambda request: "T" in (request.ext_fields.get("b"), request.ext_fields.get("topic")))
        for peer in peers:  # with grants of the time before there was a guard
            assert await codes_of(peer, *sends(peer, "U")) == [0] * COUNT
        before, before_u = stored(broker), stored(broker, "U")
        broker.guards.append(rejected)
        for peer in peers:
            for requests in (
                sends(peer), batches(peer), sends(peer, form=HeaderForm.BINARY), sends(peer, properties="wide\x01é"),
                pulls(peer), pulls(peer, sysFlag=6),
            ):  # fmt: skip
                answers = await peer.ask_together(*requests)
                assert {(answer.code, answer.remark) for answer in answers} == {(16, "rejected by a guard")}
            oneway = sends(peer, flag=ONEWAY)
            for request in oneway:
                peer.send(request)
            assert await codes_of(peer, *sends(peer, "U")) == [0] * COUNT
        assert stored(broker) == before
        assert stored(broker, "U") - before_u == 2 * COUNT
        broker.guards.clear()
        for peer in peers:
            assert await codes_of(peer, *sends(peer)) == [0] * COUNT
        assert await codes_of(peers[0], *pulls(peers[0])) == [0] * COUNT
        assert stored(broker) - before == 2 * COUNT


@over_loopback
async def test_a_guard_decides_for_each_connection(tmp_path: Path) -> None:
    """Goal: the grant of one connection is nothing to another with the same topic and group."""
    async with running_broker(tmp_path) as broker, connected(*[broker.addr] * 3) as peers:
        await prepare(peers[0], "T")
        allowed = int(peers[1].addr.rpartition(":")[2])

        def guard(request: Command, connection: Connection) -> Command | None:
            return None if connection.peer_port == allowed else request.answer(16)

        broker.guards.append(guard)
        for _ in range(3):
            for number, peer in enumerate(peers):
                assert set(await codes_of(peer, *sends(peer), *pulls(peer))) == {0 if number == 1 else 16}


# revocation between requests of one write

REVOKE = 29_998


def add_guard(broker: Broker) -> None:
    broker.guards.append(Guard(lambda request: request.code in (SEND, BATCH, PULL)))


def make_unwritable(broker: Broker) -> None:
    broker.parts.store.reject_appends("a test")


def remove_topic(broker: Broker) -> None:
    broker.parts.admission.topics.delete("T", now_ms=1)


REVOCATIONS: dict[str, Callable[[Broker], None]] = {
    "a guard": add_guard,
    "the store": make_unwritable,
    "no topic": remove_topic,
}


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("revocation", REVOCATIONS)
@over_loopback
async def test_nothing_is_stored_behind_the_request_that_revokes_it(
    tmp_path: Path, revocation: str, flush: str
) -> None:
    """Goal: of one write the sends before the revocation are stored, and none after it."""
    async with running_broker(tmp_path, flushDiskType=flush, autoCreateTopicEnable="false") as broker:

        def revoke(request: Command, connection: Connection) -> Command:
            REVOCATIONS[revocation](broker)
            return request.answer(0)

        broker._dispatchers[0].register(REVOKE, revoke)
        async with connected(broker.addr) as (peer,):
            await prepare(peer, "T")
            before, taken = stored(broker), broker.fast_paths[0].taken
            first, last = [*sends(peer), *batches(peer, count=2)], [*sends(peer), *batches(peer, count=2)]
            codes = await codes_of(peer, *first, peer.request(REVOKE), *last)
            assert set(codes[: len(first) + 1]) == {0}
            assert 0 not in codes[len(first) + 1 :]
            assert stored(broker) - before == COUNT + 6
            assert broker.fast_paths[0].taken - taken == COUNT + 6


@over_loopback
async def test_requests_of_operators_revoke_for_what_comes_after_them(tmp_path: Path) -> None:
    """Goal: fewer queues, no permission to read, a forbidden group: at once, for requests of the same write."""
    async with running_broker(tmp_path, autoCreateTopicEnable="false") as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=2)
        for _ in range(3):
            assert set(await codes_of(peer, *sends(peer, queue_id=1), *pulls(peer, queue_id=1))) == {0}
        topic = {"topic": "T", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0}
        fewer = peer.request(
            RequestCode.UPDATE_AND_CREATE_TOPIC, {**topic, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        )
        before = stored(broker)
        codes = await codes_of(
            peer, *sends(peer, queue_id=1), fewer, *sends(peer, queue_id=1), *pulls(peer, queue_id=1)
        )
        assert codes == [0] * (COUNT + 1) + [1] * 2 * COUNT
        assert stored(broker) - before == COUNT
        unreadable = peer.request(
            RequestCode.UPDATE_AND_CREATE_TOPIC, {**topic, "readQueueNums": 2, "writeQueueNums": 2, "perm": 2}
        )
        await make_topic(peer, "T", queues=2)
        codes = await codes_of(peer, *pulls(peer, queue_id=1), unreadable, *pulls(peer, queue_id=1))
        assert codes == [0] * (COUNT + 1) + [16] * COUNT


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@over_loopback
async def test_a_topic_deleted_in_the_midst_of_sends_keeps_none_of_them(tmp_path: Path, flush: str) -> None:
    """Goal: whichever sends of one write came before the deletion, all are gone with it, and later ones rejected."""
    no_topics = {"flushDiskType": flush, "autoCreateTopicEnable": "false"}
    async with running_broker(tmp_path, **no_topics) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T")
        delete = peer.request(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        codes = await codes_of(peer, *sends(peer), delete, *sends(peer), *batches(peer, count=2))
        assert set(codes[: COUNT + 1]) == {0}
        assert set(codes[COUNT + 1 :]) <= {0, 17}
        assert set(await codes_of(peer, *sends(peer), *batches(peer, count=2))) == {17}
        await make_topic(peer, "T", queues=1)
        assert stored(broker) == 0
        (answer,) = await peer.ask_together(*sends(peer, count=1))
        assert answer.ext_fields["queueOffset"] == "0"


@over_loopback
async def test_a_setting_counts_from_its_answer_on(tmp_path: Path) -> None:
    """Goal: brokerPermission ends sends to ordered topics and all pulls; a send that was rejected is not stored."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        broker.parts.admission.topics.set_orders({"T"}, now_ms=1)
        for _ in range(3):
            assert set(await codes_of(peer, *sends(peer), *pulls(peer))) == {0}
        for perm, sent, pulled in ((4, 16, 0), (2, 0, 16), (6, 0, 0)):
            before = stored(broker)
            body = format_config({"brokerPermission": str(perm)}).encode()
            change = peer.request(RequestCode.UPDATE_BROKER_CONFIG, body=body)
            answers = await peer.ask_together(*sends(peer), change, *sends(peer))
            assert answers[COUNT].code == 0
            assert stored(broker) - before == sum(answer.code == 0 for answer in answers) - 1
            assert await codes_of(peer, *sends(peer), *pulls(peer)) == [sent] * COUNT + [pulled] * COUNT
