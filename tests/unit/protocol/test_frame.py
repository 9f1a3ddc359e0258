"""Frames out of a byte stream."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FRAME_BYTES_MAX, FrameDecoder, decode_command, encode_command, encode_head

GOOD = encode_command(Command(code=11, opaque=1, body=b"one"))


def test_frames_of_one_chunk_all_come_out() -> None:
    decoder = FrameDecoder()
    frames = b"".join(encode_command(Command(code=11, opaque=opaque)) for opaque in range(50))
    assert [command.opaque for command in decoder.feed(frames + GOOD[:3])] == list(range(50))
    assert decoder.pending_bytes == 3
    assert [command.body for command in decoder.feed(GOOD[3:])] == [b"one"]
    assert decoder.pending_bytes == 0


def test_a_frame_of_exactly_the_limit_is_taken_and_one_more_byte_is_not() -> None:
    body = bytes(FRAME_BYTES_MAX - len(encode_head(Command(code=10), 0)))
    frame = encode_command(Command(code=10, body=body))
    assert len(frame) == FRAME_BYTES_MAX
    (command,) = FrameDecoder().feed(frame)
    assert len(command.body) == len(body)
    with pytest.raises(LocalProtocolError):
        encode_command(Command(code=10, body=body + b"x"))


@pytest.mark.parametrize("size", [FRAME_BYTES_MAX - 3, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0, 3, 4])
def test_a_bad_length_fails_at_once(size: int) -> None:
    """Goal: the limit is checked on the four bytes of the length, before anything is buffered."""
    decoder = FrameDecoder()
    with pytest.raises(RemoteProtocolError):
        decoder.feed(size.to_bytes(4, "big"))
    assert decoder.pending_bytes == 0


def test_a_header_longer_than_its_frame_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        FrameDecoder().feed(bytes.fromhex("00000006 00000003 7B7D"))
    with pytest.raises(RemoteProtocolError):
        decode_command(b"\x00")


def test_commands_before_garbage_are_still_returned() -> None:
    """Goal: whole or byte by byte, the same commands come out before the failure."""
    decoder = FrameDecoder()
    assert len(decoder.feed(GOOD + b"\xff\xff\xff\xff")) == 1
    assert decoder.failure is not None
    with pytest.raises(RemoteProtocolError):
        decoder.feed(GOOD)


@given(st.binary(max_size=80), st.integers(1, 9))
def test_garbage_is_refused_alike_in_any_chunking(data: bytes, chunk_bytes: int) -> None:
    whole = run([data])
    pieces = run([data[at : at + chunk_bytes] for at in range(0, len(data), chunk_bytes)])
    assert whole == pieces


def run(chunks: list[bytes]) -> tuple[list[Command], str]:
    decoder, commands = FrameDecoder(), []
    with contextlib.suppress(RemoteProtocolError):
        for chunk in chunks:
            commands += decoder.feed(chunk)
    return commands, str(decoder.failure)
