"""Frames of the fenced stream: golden bytes, any splitting, anything that is no frame."""

from __future__ import annotations

import json
import struct
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.errors import RemoteProtocolError
from rocketq.replication.fenced_auth import decode_auth_request
from rocketq.replication.fenced_frames import (
    HEADER_BYTES,
    Frame,
    FrameDecoder,
    FrameType,
    data_frame,
    decode_introduction,
    encode_frame,
)

DATA = data_frame(7, 5, 4096, 8192, 8000, b"records")

i32, i64 = st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
frames = st.builds(
    Frame,
    type=st.sampled_from(FrameType),
    master_epoch=i32,
    flags=st.integers(0, 1),
    data_epoch=i32,
    epoch_start=i64,
    offset=i64,
    second=i64,
    body=st.binary(max_size=80),
)


def test_the_header_is_laid_out_as_written() -> None:
    """Goal: every field at its place, big-endian, both checksums."""
    head = struct.pack(">ibbhiiqqqiI", 0x524D4841, 2, 3, 0, 7, 5, 4096, 8192, 8000, 7, crc32(b"records"))
    assert encode_frame(DATA) == head + struct.pack(">I", crc32(head)) + b"records"
    assert HEADER_BYTES == 52


@given(st.lists(frames, max_size=4), st.integers(1, 60))
def test_frames_survive_any_splitting(given_frames: list[Frame], piece: int) -> None:
    """Goal: where TCP splits must not matter, in header or body."""
    stream = b"".join(map(encode_frame, given_frames))
    decoder = FrameDecoder()
    got = [frame for at in range(0, len(stream), piece) for frame in decoder.feed(stream[at : at + piece])]
    assert got == given_frames


@pytest.mark.parametrize("at", range(len(encode_frame(DATA))))
def test_a_frame_split_at_any_byte(at: int) -> None:
    """Goal: both halves, whatever they are."""
    whole = encode_frame(DATA)
    decoder = FrameDecoder()
    assert [*decoder.feed(whole[:at]), *decoder.feed(whole[at:])] == [DATA]


@pytest.mark.parametrize("at", range(len(encode_frame(DATA))))
def test_a_changed_byte_anywhere_is_noticed(at: int) -> None:
    """Goal: no frame is taken that differs from what was sent."""
    damaged = bytearray(encode_frame(DATA))
    damaged[at] ^= 0x40
    with pytest.raises(RemoteProtocolError):
        list(FrameDecoder().feed(bytes(damaged)))


@given(st.binary(min_size=HEADER_BYTES, max_size=200))
def test_garbage_is_an_error_of_the_peer(data: bytes) -> None:
    """Goal: nothing else is raised, and nothing is returned."""
    with pytest.raises(RemoteProtocolError):
        list(FrameDecoder().feed(data))


def test_a_body_larger_than_allowed_is_refused_before_it_is_there() -> None:
    """Goal: an announced length costs no memory."""
    with pytest.raises(RemoteProtocolError, match="larger than 6"):
        list(FrameDecoder(body_bytes_max=6).feed(encode_frame(DATA)[:HEADER_BYTES]))


@pytest.mark.parametrize("field", ["master_epoch", "data_epoch", "epoch_start", "offset", "second"])
def test_negative_numbers_are_refused(field: str) -> None:
    """Goal: no offset before the beginning reaches the log."""
    fields = {"type": FrameType.ACK, "master_epoch": 1, field: -1}
    with pytest.raises(RemoteProtocolError, match="negative"):
        list(FrameDecoder().feed(encode_frame(Frame(**fields))))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"fileSize": Infinity}', b"[" * 100_000, b'{"epochs": [[1, 2, 3]]}', b"\xff"],
    ids=["empty", "a list", "no fields", "infinity", "deep", "a wrong epoch", "no text"],
)
def test_an_invalid_introduction_is_a_protocol_error(body: bytes) -> None:
    """Goal: no other exception leaves the decoders, whatever a peer sends."""
    fields = {"cluster": "c", "brokerName": "b", "brokerId": 1, "fileSize": 1, "logMin": 0, "logEnd": 0, "epochs": []}
    decode_introduction(json.dumps(fields).encode())
    for decode in (decode_introduction, decode_auth_request):
        with pytest.raises(RemoteProtocolError):
            decode(body)
    for name in ("logMin", "logEnd", "brokerId", "fileSize"):
        with pytest.raises(RemoteProtocolError):
            decode_introduction(json.dumps(fields | {name: float("inf")}).encode())
