"""Quotas over loopback: one bucket for the fast path and the handlers, changed while the broker runs."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rocketq.broker import Broker
from rocketq.broker.pipeline.access import SignedAccess
from rocketq.protocol.acl import Credentials
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.config_text import format_config
from rocketq.protocol.messages import BatchElement, encode_batch
from tests.contract.broker.kit import (
    ONEWAY,
    Peer,
    connected,
    eventually,
    hold,
    letters,
    make_topic,
    over_loopback,
    records,
    running_broker,
    send,
    send_fields,
)
from tests.contract.broker.test_guards import batches, codes_of, prepare, pulls, sends, stored
from tests.contract.broker.test_signed_access import signed

BUSY, MANY = 2, 50
REMARK = r"\[QUOTA\]over quota of topic T: 10 messages/s allowed, (\d+) messages/s in the last second; retry later"
SLOW = "wide\x01é\x02"
"""Ten minutes: none of these is delivered during a test."""


async def set_quotas(peer: Peer, text: str) -> Command:
    return await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=format_config({"quotas": text}).encode())


def delayed(peer: Peer, topic: str = "T", count: int = 20, **given: Any) -> list[Command]:
    return sends(peer, topic, count, properties=SLOW, **given)


def mixed(peer: Peer, topic: str = "T", count: int = 20) -> list[Command]:
    """Sends of both paths by turns."""
    return [each for pair in zip(sends(peer, topic, count), delayed(peer, topic, count), strict=True) for each in pair]


def all_stored(broker: Broker) -> int:
    return stored(broker) + broker.parts.store.end_offset("SCHEDULE_TOPIC_XXXX", 7)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@pytest.mark.parametrize("make", [sends, delayed, mixed], ids=["fast", "slow", "mixed"])
@over_loopback
async def test_sends_over_quota_are_rejected_until_there_are_tokens(
    tmp_path: Path, make: Callable[..., list[Command]], flush: str
) -> None:
    """Goal: of many sends at once as many as the quota has are stored; the others are told why; later ones pass."""
    async with running_broker(tmp_path, flushDiskType=flush) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T", "U")
        assert (await set_quotas(peer, "topic/T: 10 msg/s")).code == 0
        before, requests = all_stored(broker), make(peer, count=MANY)
        answers = await peer.ask_together(*requests)
        passed = sum(answer.code == 0 for answer in answers)
        assert 10 <= passed < MANY
        assert all_stored(broker) - before == passed
        busy = [answer for answer in answers if answer.code != 0]
        assert {answer.code for answer in busy} == {BUSY}
        for answer in busy:
            shown = re.fullmatch(REMARK, answer.remark or "")
            assert shown is not None, answer.remark
            assert 10 <= int(shown[1]) <= passed
        assert await codes_of(peer, *make(peer, "U", count=MANY)) == [0] * len(requests)

        async def passes() -> bool:
            return await codes_of(peer, *make(peer, count=1)[:1]) == [0]

        await eventually(passes)


@over_loopback
async def test_quotas_limit_bytes_groups_principals_and_every_name(tmp_path: Path) -> None:
    alice, bob = Credentials("alice", "a"), Credentials("bob", "b")
    async with (
        running_broker(tmp_path, SignedAccess({"alice": "a", "bob": "b"})) as broker,
        connected(broker.addr, broker.addr) as (peer, other),
    ):

        async def passed(peer: Peer, who: Credentials, **given: Any) -> int:
            codes = await codes_of(peer, *signed(sends(peer, count=MANY, **given), who))
            assert set(codes) <= {0, BUSY}
            return codes.count(0)

        async def limit(text: str) -> None:
            change = peer.request(RequestCode.UPDATE_BROKER_CONFIG, body=format_config({"quotas": text}).encode())
            assert await codes_of(peer, *signed([change], alice)) == [0]

        for topic in ("T", "U"):
            assert await codes_of(peer, *signed(sends(peer, topic, 1), alice)) == [0]
        await limit("topic/T: 1 KiB/s")
        assert 1 <= await passed(peer, alice) < MANY
        assert await passed(other, bob) < MANY, "of all connections and principals together"
        assert await passed(peer, alice, topic="U") == MANY
        await limit("group/*: 5 msg/s; group/free: 10000 msg/s")
        assert 5 <= await passed(peer, alice, producerGroup="p1") < MANY
        assert 5 <= await passed(other, bob, producerGroup="p2", topic="U") < MANY
        assert await passed(peer, alice, producerGroup="free") == MANY
        await limit("principal/alice: 5 msg/s")
        assert 5 <= await passed(peer, alice) < MANY
        assert await passed(other, alice, topic="U") < MANY
        assert await passed(peer, bob) == MANY
        before = stored(broker)
        await limit("")
        assert await passed(peer, alice) == MANY
        assert stored(broker) - before == MANY


@over_loopback
async def test_a_batch_larger_than_the_bucket_passes_once_and_is_paid_back(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T")
        await set_quotas(peer, "topic/T: 100 msg/s")
        body = encode_batch(BatchElement(body=b"%d" % number, properties=b"") for number in range(150))
        request = [
            peer.request(RequestCode.SEND_BATCH_MESSAGE, letters(send_fields("T", batch="true")), body)
            for _ in range(2)
        ]
        before = stored(broker)
        assert await codes_of(peer, *request, *sends(peer, count=1), *delayed(peer, count=1)) == [0, BUSY, BUSY, BUSY]
        assert stored(broker) - before == 150

        async def passes() -> bool:
            return await codes_of(peer, *sends(peer, count=1)) == [0]

        await eventually(passes)


@pytest.mark.parametrize("properties", ["a\x01b", "DELAY\x018\x02", SLOW], ids=["fast", "delayed", "slow"])
@over_loopback
async def test_oneway_sends_over_quota_are_dropped_silently(tmp_path: Path, properties: str) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T")
        await set_quotas(peer, "topic/T: 5 msg/s")
        before = all_stored(broker)
        oneway = sends(peer, count=MANY, properties=properties, flag=ONEWAY)
        unanswered = [peer.answer_to(each) for each in oneway]
        for request in oneway:
            peer.send(request)
        assert await codes_of(peer, *sends(peer, "U", 1)) == [0]
        assert 5 <= all_stored(broker) - before < MANY
        assert not any(answer.done() for answer in unanswered)


@over_loopback
async def test_pulls_are_limited_by_what_they_are_given(tmp_path: Path) -> None:
    """Goal: the first pull passes whatever it takes, the next ones wait; a pull at the end of a queue too."""
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T")
        assert set(await codes_of(peer, *sends(peer, count=40))) == {0}
        await set_quotas(peer, "group/g: 20 msg/s")
        before = broker.fast_paths[0].pulls_taken
        first, *rest = await peer.ask_together(*pulls(peer, count=3))
        assert len(records(first)) == 32
        assert [answer.code for answer in rest] == [BUSY] * 2
        assert (rest[0].remark or "").startswith("[QUOTA]over quota of group g: 20 messages/s allowed, ")
        assert broker.fast_paths[0].pulls_taken - before == 1
        assert set(await codes_of(peer, *pulls(peer, group="g2", count=3))) == {0}

        async def passes() -> bool:
            return await codes_of(peer, *pulls(peer, count=1)) == [0]

        await eventually(passes)


@over_loopback
async def test_a_held_pull_counts_when_messages_come(tmp_path: Path) -> None:
    """Goal: holding costs nothing; what wakes it is given once there are tokens, and charged."""
    async with running_broker(tmp_path) as broker, connected(broker.addr, broker.addr) as (peer, sender):
        await prepare(sender, "T")
        await set_quotas(sender, "group/g: 1 msg/s")
        end = stored(broker)
        held = hold(peer, "T", end, suspendTimeoutMillis=60_000)
        await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})  # it is held by now
        await codes_of(sender, *batches(sender, count=1))
        assert len(records(await held)) == 3
        assert await codes_of(peer, *pulls(peer, count=1)) == [BUSY]
        again = hold(peer, "T", end + 3, suspendTimeoutMillis=60_000)
        assert (await again).code == BUSY


@over_loopback
async def test_quotas_change_while_the_broker_runs(tmp_path: Path) -> None:
    """Goal: a bad value changes nothing and says why; a good one counts for the next request, and is kept."""
    async with running_broker(tmp_path, quotas="topic/T: 10 msg/s") as broker, connected(broker.addr) as (peer,):
        await make_topic(peer, "T", queues=1)
        assert 10 <= (await codes_of(peer, *sends(peer, count=MANY))).count(0) < MANY
        bad = await set_quotas(peer, "topic/T: many msg/s")
        assert bad.code == 1
        assert bad.remark == (
            'quotas: limit "many msg/s" of topic/T is invalid: write a number above 0 and msg/s, B/s, KiB/s or MiB/s'
        )
        assert broker.config.quotas == "topic/T: 10 msg/s"
        assert BUSY in await codes_of(peer, *sends(peer, count=MANY))
        assert (await set_quotas(peer, "topic/T: 100000 msg/s")).code == 0
        assert await codes_of(peer, *sends(peer, count=MANY)) == [0] * MANY
        shown = await peer.ask(RequestCode.GET_BROKER_CONFIG)
        assert b"quotas=topic/T: 100000 msg/s" in shown.body.replace(b"\\", b"")
        assert (await set_quotas(peer, "")).code == 0
        taken = broker.fast_paths[0].taken
        assert await codes_of(peer, *sends(peer, count=MANY)) == [0] * MANY
        assert broker.fast_paths[0].taken - taken == MANY
        assert (await send(peer, "T")).code == 0
