"""interop.md, line 59: replies to request messages, over loopback with raw frames."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.send import PushReplyRequest
from rocketq.protocol.properties import decode_properties
from rocketq.protocol.requests import decode_header
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    connected,
    heartbeat,
    letters,
    over_loopback,
    properties,
    props,
    pull,
    records,
    send_fields,
)

MakeCluster = Callable[..., EmbeddedCluster]
TOPIC = "DefaultCluster_REPLY_TOPIC"
REPLY = props(REPLY_TO_CLIENT="asker", CORRELATION_ID="42", MSG_TYPE="reply", TTL="3000")


@over_loopback
async def test_059_a_reply_is_pushed_to_the_client_that_asked_and_kept(rocketq_cluster: EmbeddedCluster) -> None:
    """Goal: both codes, both header forms of names; the push has everything a client needs to find its request."""
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (asker, replier):
        await heartbeat(asker, "asker")
        fields = send_fields(TOPIC, properties=REPLY, flag=5)
        for code, given in ((324, fields), (325, letters(fields))):
            answer = replier.start(code, given, b"the answer")
            push = await asker.pushed(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
            header = decode_header(push)
            assert isinstance(header, PushReplyRequest)
            assert (push.body, header.topic, header.flag, header.group) == (b"the answer", TOPIC, 5, "p")
            found = decode_properties(header.properties.encode())
            assert {"CORRELATION_ID": "42", "REPLY_TO_CLIENT": "asker"}.items() <= found.items()
            assert int(found["PUSH_REPLY_TIME"]) > 0
            assert header.born_host == replier.addr
            assert header.store_host == rocketq_cluster.broker_addr
            asker.send(push.answer(0))
            done = await asyncio.wait_for(answer, 10)
            assert (done.code, len(done.ext_fields["msgId"]), done.ext_fields["queueId"]) == (0, 32, "0")
        kept = records(await pull(replier, TOPIC))
        assert [record.body for record in kept[-2:]] == [b"the answer"] * 2
        assert properties(kept[-1])["CORRELATION_ID"] == "42"


@over_loopback
async def test_059_a_reply_nobody_takes_is_1_and_kept(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(*[rocketq_cluster.broker_addr] * 2) as (asker, replier):
        await heartbeat(asker, "refuser")
        for text in (props(REPLY_TO_CLIENT="nobody"), props(a="b"), props(REPLY_TO_CLIENT="refuser")):
            answer = replier.start(324, send_fields(TOPIC, properties=text), b"lost?")
            if "refuser" in text:
                push = await asker.pushed(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
                asker.send(push.answer(1, remark="I asked nothing"))
            done = await asyncio.wait_for(answer, 10)
            assert (done.code, bool(done.remark)) == (1, True)
            assert {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"} == set(done.ext_fields)
            found = await replier.ask(
                RequestCode.VIEW_MESSAGE_BY_ID, {"offset": int(done.ext_fields["msgId"][16:], 16)}
            )
            assert records(found)[0].body == b"lost?"


@over_loopback
async def test_replies_need_not_be_kept(make_rocketq_cluster: MakeCluster) -> None:
    cluster = make_rocketq_cluster(settings={"storeReplyMessageEnable": "false"})
    async with connected(*[cluster.broker_addr] * 2) as (asker, replier):
        await heartbeat(asker, "asker")
        answer = replier.start(325, letters(send_fields(TOPIC, properties=REPLY)), b"only passed on")
        push = await asker.pushed(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        asker.send(push.answer(0))
        done = await asyncio.wait_for(answer, 10)
        assert (done.code, done.ext_fields["msgId"], done.ext_fields["queueOffset"]) == (0, "0", "0")
        empty = await replier.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0})
        assert empty.ext_fields["offset"] == "0"


@over_loopback
async def test_a_reply_is_checked_like_any_send(rocketq_cluster: EmbeddedCluster) -> None:
    async with connected(rocketq_cluster.broker_addr) as (peer,):
        assert (await peer.ask(324, send_fields(TOPIC, queue_id=7, properties=REPLY), b"x")).code == 1
        assert (await peer.ask(324, send_fields("no topic!", properties=REPLY), b"x")).code == 1
        unknown = send_fields("NoSuchReplyTopic", properties=REPLY, defaultTopic="None")
        assert (await peer.ask(324, unknown, b"x")).code == 17
