"""Frames made by template are what the general way gives, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.client.core.messages import Outgoing
from rocketq.client.core.requests import SendTemplate
from rocketq.errors import LocalProtocolError
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.frame import encode_command
from rocketq.protocol.headers.send import SendRequest
from rocketq.protocol.requests import make_request

CODES = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)


@given(
    code=st.sampled_from(CODES),
    numbers=st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**62)),
    properties=st.text(),
    body=st.binary(max_size=200),
    broker_name=st.text(min_size=1),
    oneway=st.booleans(),
    unit_mode=st.booleans(),
)
def test_a_template_gives_the_same_bytes(
    code: RequestCode,
    numbers: tuple[int, int, int],
    properties: str,
    body: bytes,
    broker_name: str,
    oneway: bool,
    unit_mode: bool,
) -> None:
    opaque, queue_id, born_ms = numbers
    outgoing = Outgoing(body, 0x301, properties, "ID", 7)
    template = SendTemplate(
        "g",
        "ns%T",
        broker_name,
        code=code,
        template_topic="TBW102",
        new_topic_queues=4,
        unit_mode=unit_mode,
        oneway=oneway,
    )
    header = SendRequest(
        group="g",
        topic="ns%T",
        default_queue_count=4,
        queue_id=queue_id,
        sys_flag=0x301,
        born_ms=born_ms,
        flag=7,
        properties=properties,
        unit_mode=unit_mode,
        batch=code is RequestCode.SEND_BATCH_MESSAGE,
        broker_name=broker_name,
    )
    command = make_request(header, opaque=opaque, code=code, body=body, oneway=oneway)
    assert template.frame(opaque, queue_id, born_ms, outgoing) == encode_command(command)


def test_a_frame_that_is_too_large_is_refused_here() -> None:
    template = SendTemplate("g", "T", "b", template_topic="TBW102", new_topic_queues=4)
    with pytest.raises(LocalProtocolError):
        template.frame(1, 0, 0, Outgoing(bytes(16 << 20), 0, "", "ID"))
