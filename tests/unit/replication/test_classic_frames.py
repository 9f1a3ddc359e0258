"""The classic stream's bytes: reports and frames, wherever TCP cuts them."""

from __future__ import annotations

import pytest

from rocketq.errors import RemoteProtocolError
from rocketq.replication.classic_frames import FrameReader, ReportReader, encode_header, encode_report

SEGMENT = 1 << 20


def joined(reader: FrameReader, chunks: list[bytes]) -> tuple[dict[int, bytes], list[int]]:
    """The log's bytes by where each stretch starts, and the heartbeats."""
    stretches: dict[int, bytes] = {}
    beats = []
    for piece in [piece for chunk in chunks for piece in reader.feed(chunk)]:
        if not piece.data:
            beats.append(piece.log_offset)
            continue
        start = next((at for at, data in stretches.items() if at + len(data) == piece.log_offset), piece.log_offset)
        stretches[start] = stretches.get(start, b"") + bytes(piece.data)
    return stretches, beats


def test_bytes_are_apaches() -> None:
    """Goal: the layout on the wire, golden."""
    assert encode_report(0x0102030405060708).hex() == "0102030405060708"
    assert encode_header(4096, 3).hex() == "0000000000001000" + "00000003"


def test_frames_cut_at_every_byte_are_the_same() -> None:
    """Goal: where TCP splits a header or body must not matter."""
    stream = encode_header(100, 0) + encode_header(100, 5) + b"hello" + encode_header(105, 3) + b"abc"
    stream += encode_header(108, 0)
    expected = ({100: b"helloabc"}, [100, 108])
    for first in range(len(stream) + 1):
        assert joined(FrameReader(SEGMENT), [stream[:first], stream[first:]]) == expected
    assert joined(FrameReader(SEGMENT), [stream[at : at + 1] for at in range(len(stream))]) == expected


@pytest.mark.parametrize(
    ("log_offset", "size"), [(-1, 1), (0, -1), (0, SEGMENT + 1), (SEGMENT - 1, 2), (5 * SEGMENT - 10, 11)]
)
def test_headers_that_cannot_be_are_refused(log_offset: int, size: int) -> None:
    """Goal: garbage and a master with other file sizes are noticed before anything is taken."""
    with pytest.raises(RemoteProtocolError):
        FrameReader(SEGMENT).feed(encode_header(log_offset, size))


def test_only_the_last_whole_report_counts() -> None:
    """Goal: several reports in one read, and one cut anywhere."""
    stream = encode_report(7) + encode_report(9) + encode_report(-3)
    assert ReportReader().feed(stream) == -3
    for first in range(len(stream) + 1):
        reader = ReportReader()
        heard = [report for report in (reader.feed(stream[:first]), reader.feed(stream[first:])) if report is not None]
        assert heard[-1] == -3
    reader = ReportReader()
    assert [reader.feed(bytes([byte])) for byte in encode_report(1)] == [None] * 7 + [1]
