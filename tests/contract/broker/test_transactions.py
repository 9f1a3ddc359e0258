"""Transactions over loopback with raw frames: interop lines 61-66, decisions that are made once, and bad input."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from rocketq.broker.transaction.half_messages import HALF_PROPERTIES_BYTES_MAX
from rocketq.model import Record, SysFlag, decode_message_id
from rocketq.protocol.bodies.clients import Heartbeat, ProducerData
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.messages import decode_records
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    JAVA_533,
    ONEWAY,
    Peer,
    connected,
    eventually,
    hold,
    make_topic,
    over_loopback,
    properties,
    props,
    pull,
    records,
    send,
)

MakeCluster = Callable[..., EmbeddedCluster]

HALF, OP, PARKED = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
QUICK = {"transactionTimeOut": "100", "transactionCheckInterval": "100", "transactionCheckMax": "3"}
NO_CHECKS = {"transactionCheckInterval": "3600000"}


@pytest.fixture
def cluster(make_rocketq_cluster: MakeCluster) -> EmbeddedCluster:
    """Nobody is asked about anything."""
    return make_rocketq_cluster(settings=NO_CHECKS)


def half_fields(key: str = "U1", group: str = "pg", **more: str) -> dict[str, Any]:
    named = {"TRAN_MSG": "true", "PGROUP": group, "UNIQ_KEY": key, "KEYS": "k", "TAGS": "TagA", "WAIT": "true", **more}
    return {"producerGroup": group, "sysFlag": 4, "properties": props(**named)}


async def send_half(
    peer: Peer, topic: str, body: bytes = b"half", queue_id: int = 1, *, born_ms: int | None = None, **more: str
) -> Command:
    born_ms = int(time.time() * 1000) if born_ms is None else born_ms
    answer = await send(peer, topic, body, queue_id, bornTimestamp=born_ms, **half_fields(**more))
    assert answer.code == 0, answer
    return answer


def end_fields(half: Command, state: int, group: str = "pg", **more: Any) -> dict[str, Any]:
    _, log_offset = decode_message_id(half.ext_fields["msgId"])
    return {
        "producerGroup": group,
        "tranStateTableOffset": half.ext_fields["queueOffset"],
        "commitLogOffset": log_offset,
        "commitOrRollback": state,
        "fromTransactionCheck": "false",
        "msgId": "U1",
        **more,
    }


async def end(peer: Peer, half: Command, state: int, **more: Any) -> Command:
    return await peer.ask(RequestCode.END_TRANSACTION, end_fields(half, state, **more))


def answer_check(check: Command, state: int, group: str = "pg") -> dict[str, Any]:
    return {
        "producerGroup": group,
        "tranStateTableOffset": check.ext_fields["tranStateTableOffset"],
        "commitLogOffset": check.ext_fields["commitLogOffset"],
        "commitOrRollback": state,
        "fromTransactionCheck": "true",
        "msgId": check.ext_fields["msgId"],
        "transactionId": check.ext_fields["transactionId"],
    }


async def produce_for(peer: Peer, client_id: str, *groups: str) -> None:
    beat = Heartbeat(client_id=client_id, producers=tuple(ProducerData(group=group) for group in groups))
    assert (await peer.ask(RequestCode.HEART_BEAT, body=beat.encode())).code == 0


async def all_of(peer: Peer, topic: str, queue_id: int = 1) -> list[Record]:
    answer = await pull(peer, topic, 0, queue_id=queue_id)
    return records(answer) if answer.code == 0 else []


async def bodies(peer: Peer, topic: str, queue_id: int = 1) -> list[bytes]:
    return [record.body for record in await all_of(peer, topic, queue_id)]


# lines 61 to 66


@over_loopback
async def test_61_a_half_message_is_not_visible(cluster: EmbeddedCluster) -> None:
    """Goal: consumers see nothing; the answer names the half record, and the queue that was asked for."""
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        await send(peer, "T", b"before", 1)
        held = hold(peer, "T", 1, queue_id=1, suspendTimeoutMillis=1_000)
        answer = await send_half(peer, "T")
        assert answer.ext_fields["queueId"] == "1"
        assert answer.ext_fields["queueOffset"] == "0"
        _, log_offset = decode_message_id(answer.ext_fields["msgId"])
        viewed = await peer.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": log_offset})
        (record,) = decode_records(viewed.body)
        assert (record.topic, record.queue_id, record.queue_offset) == (HALF, 0, 0)
        assert record.sys_flag & SysFlag.TRANSACTION_MASK == 0
        assert (properties(record)["REAL_TOPIC"], properties(record)["REAL_QID"]) == ("T", "1")
        assert (await held).code == 19
        assert await bodies(peer, "T") == [b"before"]


@over_loopback
async def test_62_a_commit_makes_it_visible_in_its_place(cluster: EmbeddedCluster) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        held = hold(peer, "T", 0, queue_id=1, suspendTimeoutMillis=10_000)
        half = await send_half(peer, "T", b"wanted", 1)
        assert (await end(peer, half, COMMIT)).code == 0
        (record,) = records(await held)  # a waiting consumer is told at once
        assert (record.topic, record.queue_id, record.body) == ("T", 1, b"wanted")
        assert record.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
        assert record.prepared_offset == decode_message_id(half.ext_fields["msgId"])[1]
        assert properties(record)["TRAN_MSG"] == "true"
        (op,) = await all_of(peer, OP, 0)
        assert (op.body, op.properties) == (b"0", b"WAIT\x01true\x02TAGS\x01d")


@over_loopback
async def test_63_a_rollback_is_for_good_and_unknown_does_nothing(cluster: EmbeddedCluster) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        half = await send_half(peer, "T")
        unknown = peer.start(RequestCode.END_TRANSACTION, end_fields(half, UNKNOWN))
        checked = peer.start(RequestCode.END_TRANSACTION, end_fields(half, UNKNOWN, fromTransactionCheck="true"))
        assert (await end(peer, half, ROLLBACK)).code == 0
        assert not unknown.done()
        assert not checked.done()
        assert await bodies(peer, "T") == []
        refused = await end(peer, half, COMMIT)
        assert (refused.code, "rolled back before" in (refused.remark or "")) == (1, True)
        assert await bodies(peer, "T") == []


@over_loopback
async def test_64_another_group_is_refused(cluster: EmbeddedCluster) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        half = await send_half(peer, "T")
        refused = await end(peer, half, COMMIT, group="strangers")
        assert (refused.code, "group pg, not of strangers" in (refused.remark or "")) == (1, True)
        assert await bodies(peer, "T") == []
        assert await all_of(peer, OP, 0) == []
        assert (await end(peer, half, COMMIT)).code == 0


@over_loopback
async def test_65_one_producer_at_a_time_is_asked_at_most_so_many_times(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: with three checks allowed, three are sent, in turn to two connections; then the message can be found among
    those nobody decided on."""
    cluster = make_rocketq_cluster(settings=QUICK)
    async with connected(*[cluster.broker_addr] * 3) as (one, two, other):
        await make_topic(one, "T")
        await produce_for(one, "c1", "pg")
        await produce_for(two, "c2", "pg")
        await produce_for(other, "c3", "others")
        await send_half(one, "T", b"forgotten")

        async def given_up() -> bool:
            return await bodies(one, PARKED, 0) == [b"forgotten"]

        await eventually(given_up)
        await asyncio.sleep(0.3)
        pushes = [[peer.pushes.get_nowait() for _ in range(peer.pushes.qsize())] for peer in (one, two, other)]
        assert sorted(map(len, pushes)) == [0, 1, 2]
        assert pushes[2] == []
        checks = sorted(pushes[0] + pushes[1], key=lambda check: int(check.ext_fields["tranStateTableOffset"]))
        assert {check.code for check in checks} == {RequestCode.CHECK_TRANSACTION_STATE}
        assert all(check.is_oneway for check in checks)
        times = [properties(decode_records(check.body)[0])["TRANSACTION_CHECK_TIMES"] for check in checks]
        assert times == ["1", "2", "3"]
        assert await bodies(one, "T") == []


@over_loopback
async def test_66_a_check_is_answered_with_its_own_offsets(make_rocketq_cluster: MakeCluster) -> None:
    cluster = make_rocketq_cluster(settings=QUICK)
    async with connected(cluster.broker_addr) as (old,), connected(cluster.broker_addr, version=JAVA_533) as (new,):
        await make_topic(old, "T")
        for peer, group, key in ((old, "pg", "U1"), (new, "pg5", "U2")):
            await produce_for(peer, f"client-{key}", group)
            await send_half(peer, "T", key.encode(), 2, key=key, group=group)
            check = await peer.pushed(RequestCode.CHECK_TRANSACTION_STATE)
            (record,) = decode_records(check.body)
            assert (record.topic, record.queue_id, record.body) == ("T", 2, key.encode())
            assert check.ext_fields["msgId"] == check.ext_fields["transactionId"] == key
            assert decode_message_id(check.ext_fields["offsetMsgId"])[1] == int(check.ext_fields["commitLogOffset"])
            assert record.log_offset == int(check.ext_fields["commitLogOffset"])
            assert record.queue_offset == int(check.ext_fields["tranStateTableOffset"])
            assert ("bname" in check.ext_fields, "topic" in check.ext_fields) == (peer is new, peer is new)
            decided = answer_check(check, COMMIT, group)
            assert (await peer.ask(RequestCode.END_TRANSACTION, decided)).code == 0
        assert await bodies(old, "T", 2) == [b"U1", b"U2"]


# settled once


@over_loopback
async def test_a_repeated_decision_stores_nothing_and_the_opposite_is_refused(
    make_rocketq_cluster: MakeCluster,
) -> None:
    """Goal: by the first handle or that of a check, from any client of the group, before and after a restart."""
    cluster = make_rocketq_cluster(settings=QUICK | {"transactionCheckMax": "1000"})
    decided: dict[int, list[Any]] = {}
    async with connected(cluster.broker_addr, cluster.broker_addr) as (peer, friend):
        await make_topic(peer, "T")
        await produce_for(peer, "c1", "pg")
        for state, key in ((COMMIT, "UC"), (ROLLBACK, "UR")):
            half = await send_half(peer, "T", key.encode(), key=key)
            first, second = [await peer.pushed(RequestCode.CHECK_TRANSACTION_STATE) for _ in range(2)]
            decided[state] = [end_fields(half, state), answer_check(first, state), answer_check(second, state)]
            for fields in decided[state]:
                assert (await friend.ask(RequestCode.END_TRANSACTION, fields)).code == 0
        await everything_counts_once(friend, decided)
    for _ in range(2):
        cluster.restart_broker()
        async with connected(cluster.broker_addr) as (peer,):
            await everything_counts_once(peer, decided)


async def everything_counts_once(peer: Peer, decided: dict[int, list[Any]]) -> None:
    ops = len(await all_of(peer, OP, 0))
    for state, handles in decided.items():
        opposite = ROLLBACK if state == COMMIT else COMMIT
        for fields in handles:
            assert (await peer.ask(RequestCode.END_TRANSACTION, fields)).code == 0
            refused = await peer.ask(RequestCode.END_TRANSACTION, fields | {"commitOrRollback": opposite})
            assert refused.code == 1, refused
    assert await bodies(peer, "T") == [b"UC"]
    assert len(await all_of(peer, OP, 0)) == ops


@over_loopback
async def test_two_halves_with_one_unique_key_are_two_transactions(cluster: EmbeddedCluster) -> None:
    """Goal: a producer that sent a half again, unsure of the first, decides on each; after a restart too."""
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        first, second = [await send_half(peer, "T", body, born_ms=1) for body in (b"first", b"second")]
        assert (await end(peer, first, ROLLBACK)).code == 0
        assert (await end(peer, second, COMMIT)).code == 0
    cluster.restart_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert [(await end(peer, first, state)).code for state in (ROLLBACK, COMMIT)] == [0, 1]
        assert [(await end(peer, second, state)).code for state in (ROLLBACK, COMMIT)] == [1, 0]
        assert await bodies(peer, "T") == [b"second"]


@over_loopback
async def test_a_decision_may_come_late(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: what was given up was not delivered, so that a commit still counts, once; a rollback too."""
    cluster = make_rocketq_cluster(settings=QUICK | {"transactionCheckMax": "0"})
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        halves = [await send_half(peer, "T", key.encode(), key=key) for key in ("UC", "UR")]

        async def both() -> bool:
            return sorted(await bodies(peer, PARKED, 0)) == [b"UC", b"UR"]

        await eventually(both)
    for turn in range(2):
        async with connected(cluster.broker_addr) as (peer,):
            if turn == 0:
                assert (await end(peer, halves[0], COMMIT)).code == 0
                assert (await end(peer, halves[1], ROLLBACK)).code == 0
            assert [(await end(peer, halves[0], state)).code for state in (COMMIT, ROLLBACK)] == [0, 1]
            assert [(await end(peer, halves[1], state)).code for state in (COMMIT, ROLLBACK)] == [1, 0]
            assert await bodies(peer, "T") == [b"UC"]
        cluster.restart_broker()


@over_loopback
async def test_checks_can_be_begun_anew(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: request 323 takes a given-up message back; its transaction stays one."""
    cluster = make_rocketq_cluster(settings=QUICK | {"transactionCheckMax": "1"})
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        half = await send_half(peer, "T", b"again")

        async def parked() -> bool:
            return len(await bodies(peer, PARKED, 0)) == 1

        await eventually(parked)
        await produce_for(peer, "c1", "pg")
        (found,) = await all_of(peer, PARKED, 0)
        resume = RequestCode.RESUME_CHECK_HALF_MESSAGE
        assert (await peer.ask(resume, {"msgId": found.message_id})).code == 0
        check = await peer.pushed(RequestCode.CHECK_TRANSACTION_STATE)
        assert (await peer.ask(RequestCode.END_TRANSACTION, answer_check(check, ROLLBACK))).code == 0
        for bad in ({"msgId": found.message_id}, {}, {"msgId": "x"}, {"msgId": half.ext_fields["msgId"][:-2] + "FF"}):
            assert (await peer.ask(resume, bad)).code == 1
    cluster.restart_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert [(await end(peer, half, state)).code for state in (COMMIT, ROLLBACK)] == [1, 0]
        assert await bodies(peer, "T") == []


# bad input


@over_loopback
async def test_decisions_that_cannot_be_are_refused_and_store_nothing(cluster: EmbeddedCluster) -> None:
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        plain = await send(peer, "T", b"plain", 1, properties=props(PGROUP="pg"))
        half = await send_half(peer, "T")
        good = end_fields(half, COMMIT)
        for wrong, reason in (
            ({"commitOrRollback": 7}, "8 (commit)"),
            ({"commitLogOffset": -1}, "no half message"),
            ({"commitLogOffset": good["commitLogOffset"] + 1}, "no half message"),
            ({"commitLogOffset": 1 << 40}, "no half message"),
            ({"commitLogOffset": (1 << 63) - 1}, "no half message"),
            ({"tranStateTableOffset": 5}, "queue offset 0, not 5"),
            ({"producerGroup": "other"}, "not of other"),
            ({"commitLogOffset": "x"}, "commitLogOffset"),
            (end_fields(plain, COMMIT), "no half message"),
        ):
            refused = await peer.ask(RequestCode.END_TRANSACTION, good | wrong)
            assert refused.code == 1, wrong
            assert reason in (refused.remark or ""), refused
        for missing in ("producerGroup", "commitLogOffset", "tranStateTableOffset", "commitOrRollback"):
            fields = {name: value for name, value in good.items() if name != missing}
            assert (await peer.ask(RequestCode.END_TRANSACTION, fields)).code == 1
        assert await bodies(peer, "T") == [b"plain"]
        peer.start(RequestCode.END_TRANSACTION, good, flag=ONEWAY)

        async def committed() -> bool:
            return await bodies(peer, "T") == [b"plain", b"half"]

        await eventually(committed)


@over_loopback
async def test_a_commit_for_a_topic_that_is_gone_waits(cluster: EmbeddedCluster) -> None:
    """Goal: nobody could read it: the transaction stays open until the topic is there again."""
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        half = await send_half(peer, "T")
        assert (await peer.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        refused = await end(peer, half, COMMIT)
        assert (refused.code, "create it" in (refused.remark or "")) == (17, True)
        await make_topic(peer, "T")
        assert (await end(peer, half, COMMIT)).code == 0
        assert await bodies(peer, "T") == [b"half"]


@over_loopback
async def test_half_messages_that_cannot_be(make_rocketq_cluster: MakeCluster) -> None:
    cluster = make_rocketq_cluster(settings=NO_CHECKS)
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        for topic in (HALF, OP, PARKED):
            assert (await send(peer, topic, b"forged")).code == 16
        await make_topic(peer, "Plain")
        assert (await send(peer, "Plain", b"x", 1, sysFlag=4)).code == 0  # no half without the property
        assert await bodies(peer, "Plain") == [b"x"]
        huge = await send(peer, "T", b"x", 1, **half_fields(big="x" * HALF_PROPERTIES_BYTES_MAX))
        assert (huge.code, "properties" in (huge.remark or "")) == (13, True)
        assert await all_of(peer, HALF, 0) == []
        delayed = await send_half(peer, "T", b"never delayed", DELAY="3", TIMER_DELAY_MS="5000")
        assert (await end(peer, delayed, COMMIT)).code == 0
        (record,) = await all_of(peer, "T")
        assert "DELAY" not in properties(record)
        nameless = await send(
            peer, "T", b"nameless", 1, sysFlag=4, properties=props(TRAN_MSG="true", PGROUP="pg"), producerGroup="pg"
        )
        assert [(await end(peer, nameless, COMMIT)).code for _ in range(2)] == [0, 0]
        assert await bodies(peer, "T") == [b"never delayed", b"nameless"]
    cluster = make_rocketq_cluster(settings={"rejectTransactionMessage": "true"})
    async with connected(cluster.broker_addr) as (peer,):
        assert (await send(peer, "T", b"x", 1, **half_fields())).code == 16


# with the disk, and across restarts


@over_loopback
async def test_with_sync_flush_and_with_a_transient_buffer(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: a half is found as soon as it is answered, also where readers see less than what is written."""
    for settings in ({"flushDiskType": "SYNC_FLUSH"}, {"transientStorePoolEnable": "true"}):
        cluster = make_rocketq_cluster(settings=QUICK | settings)
        async with connected(cluster.broker_addr) as (peer,):
            await make_topic(peer, "T")
            await produce_for(peer, "c1", "pg")
            half = await send_half(peer, "T", b"one", key="U1")
            assert (await end(peer, half, COMMIT)).code == 0
            await send_half(peer, "T", b"two", key="U2")
            check = await peer.pushed(RequestCode.CHECK_TRANSACTION_STATE)
            while check.ext_fields["msgId"] != "U2":  # the first may have been asked about while its end waited
                check = await peer.pushed(RequestCode.CHECK_TRANSACTION_STATE)
            assert (await peer.ask(RequestCode.END_TRANSACTION, answer_check(check, COMMIT))).code == 0

            async def both(peer: Peer = peer) -> bool:
                return await bodies(peer, "T") == [b"one", b"two"]

            await eventually(both)


@over_loopback
async def test_open_transactions_are_asked_about_after_a_restart(make_rocketq_cluster: MakeCluster) -> None:
    cluster = make_rocketq_cluster(settings=QUICK | {"transactionTimeOut": "1500", "transactionCheckMax": "15"})
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        halves = [await send_half(peer, "T", b"%d" % n, key=f"U{n}") for n in range(4)]
        assert (await end(peer, halves[1], COMMIT)).code == 0
    cluster.restart_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert {one.root for one in cluster.brokers[0].parts.transactions.service.ledger} <= {0, 2, 3}
        await produce_for(peer, "c1", "pg")
        left = {"U0", "U2", "U3"}
        while left:
            check = await peer.pushed(RequestCode.CHECK_TRANSACTION_STATE)
            assert check.ext_fields["msgId"] in {"U0", "U2", "U3"}
            left.discard(check.ext_fields["msgId"])
            await peer.ask(RequestCode.END_TRANSACTION, answer_check(check, COMMIT))
        assert sorted(await bodies(peer, "T")) == [b"0", b"1", b"2", b"3"]


@over_loopback
async def test_cleaning_up_topics_leaves_transactions_alone(cluster: EmbeddedCluster) -> None:
    """Goal: directories of Apache know queues of system topics that are in no table."""
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        first, second = [await send_half(peer, "T", b"%d" % n, key=f"U{n}") for n in range(2)]
        assert (await end(peer, first, ROLLBACK)).code == 0

        async def forget() -> None:
            cluster.brokers[0].parts.topics.table.delete(HALF, OP, now_ms=0)

        await asyncio.to_thread(cluster.thread.run, forget())
        assert (await peer.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == 0
        assert (await end(peer, second, COMMIT)).code == 0
    cluster.restart_broker()
    async with connected(cluster.broker_addr) as (peer,):
        assert [(await end(peer, first, state)).code for state in (COMMIT, ROLLBACK)] == [1, 0]
        assert await bodies(peer, "T") == [b"1"]


@over_loopback
async def test_a_full_disk_settles_nothing_and_loses_nothing(cluster: EmbeddedCluster) -> None:
    store = cluster.brokers[0].parts.store
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, "T")
        halves = [await send_half(peer, "T", b"%d" % n, key=f"U{n}") for n in range(2)]
        store.health.disk_full = "no room"  # as the store's own watch would set it
        for state in (COMMIT, ROLLBACK):
            refused = await end(peer, halves[0], state)
            assert (refused.code, "no room" in (refused.remark or "")) == (14, True)
        store.health.disk_full = None
        assert (await end(peer, halves[0], COMMIT)).code == 0
        assert (await end(peer, halves[1], ROLLBACK)).code == 0
        assert await bodies(peer, "T") == [b"0"]
