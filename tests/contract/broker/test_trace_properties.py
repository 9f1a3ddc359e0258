"""Region and trace switch in stored messages: consumers of 5.x write traces only where both are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.messages import BatchElement, encode_batch
from rocketq.protocol.names import TRACE_TOPIC
from tests.contract.broker.kit import (
    Peer,
    connected,
    letters,
    make_topic,
    over_loopback,
    properties,
    props,
    pull,
    records,
    running_broker,
    send_fields,
)
from tests.contract.broker.test_guards import codes_of

OWN = props(MSG_REGION="mine", TAGS="TagA", TRACE_ON="maybe")
"""What a sender says itself."""


async def stored_properties(peer: Peer) -> list[dict[str, str]]:
    """Of one send on the fast path, one on the slow path, and a batch on each."""
    await make_topic(peer, "T", queues=1)
    warm = [peer.request(RequestCode.SEND_MESSAGE_V2, letters(send_fields("T")), b"x") for _ in range(2)]
    assert await codes_of(peer, *warm) == [0, 0]
    start = int((await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})).ext_fields["offset"])
    batch = encode_batch([BatchElement(body=b"b", properties=b"TAGS\x01TagA")])
    one, many = letters(send_fields("T", properties=OWN)), letters(send_fields("T", properties=OWN, batch="true"))
    unknown = {"unknownToTheKernel": "x"}
    requests = [
        *(peer.request(RequestCode.SEND_MESSAGE_V2, {**one, **more}, b"b") for more in ({}, unknown)),
        *(peer.request(RequestCode.SEND_BATCH_MESSAGE, {**many, **more}, batch) for more in ({}, unknown)),
    ]
    assert await codes_of(peer, *requests) == [0] * 4
    found = records(await pull(peer, "T", start))
    assert len(found) == 4
    assert found[0].properties == found[1].properties
    assert found[2].properties == found[3].properties
    return [properties(record) for record in found]


@pytest.mark.parametrize("trace_on", ["true", "false"])
@pytest.mark.parametrize("by", ["setting", "topic"])
@over_loopback
async def test_traced_brokers_write_their_own_region_and_switch(tmp_path: Path, by: str, trace_on: str) -> None:
    """Goal: on both paths and in batches, in place of what the sender says."""
    given = {"traceTopicEnable": "true"} if by == "setting" else {}
    async with (
        running_broker(tmp_path, regionId="here", traceOn=trace_on, **given) as broker,
        connected(broker.addr) as (peer,),
    ):
        if by == "topic":
            assert {each["MSG_REGION"] for each in await stored_properties(peer)} == {"mine"}
            broker.parts.admission.topics.create_exactly(TRACE_TOPIC, 1, now_ms=1)
        before = broker.fast_paths[0].taken
        for each in await stored_properties(peer):
            assert (each["MSG_REGION"], each["TRACE_ON"]) == ("here", trace_on)
            assert each["TAGS"] == "TagA"
        assert broker.fast_paths[0].taken - before >= 2


@over_loopback
async def test_other_brokers_leave_the_senders_own(tmp_path: Path) -> None:
    async with running_broker(tmp_path, regionId="here") as broker, connected(broker.addr) as (peer,):
        for each in await stored_properties(peer):
            assert (each["MSG_REGION"], each["TRACE_ON"]) == ("mine", "maybe")
