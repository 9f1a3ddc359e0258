"""POP's texts."""

from __future__ import annotations

import pytest

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.handles import (
    PopHandle,
    decode_message_offsets,
    decode_start_offsets,
    encode_message_offsets,
    encode_start_offsets,
)

TEXT = "100 1600000000000 60000 3 0 broker-a 2 101"


def test_a_handle_reads_and_writes_back() -> None:
    handle = PopHandle.decode(TEXT)
    assert (handle.start_offset, handle.queue_id, handle.queue_offset, handle.retry) == (100, 2, 101, "0")
    assert handle.encode() == TEXT


@pytest.mark.parametrize("text", ["", "1 2 3", TEXT + " 9", TEXT.replace("101", "x")])
def test_a_bad_handle_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        PopHandle.decode(text)


def test_offset_texts_read_and_write_back() -> None:
    assert decode_start_offsets("0 0 5;1 2 7") == {("0", 0): 5, ("1", 2): 7}
    assert encode_start_offsets({("0", 0): 5, ("1", 2): 7}) == "0 0 5;1 2 7"
    assert decode_message_offsets("0 0 5,6,7;2 1 9;") == {("0", 0): (5, 6, 7), ("2", 1): (9,)}
    assert encode_message_offsets({("0", 0): (5, 6)}) == "0 0 5,6"
    assert decode_start_offsets("") == {}


@pytest.mark.parametrize("text", ["0 0", "0 x 1", "0 0 x", "0 0 1;0 0 2"])
def test_bad_offset_texts_are_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_start_offsets(text)
