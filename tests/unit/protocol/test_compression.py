"""Compressed message bodies."""

from __future__ import annotations

import importlib
import sys

import pytest

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.compression import Compression, MissingCodecError, compress, compression_of, decompress

PACKAGES = {Compression.ZLIB: "zlib", Compression.LZ4: "lz4.frame", Compression.ZSTD: "zstandard"}
BODY = b"a" * 5000 + bytes(range(256))


def installed(kind: Compression) -> Compression:
    pytest.importorskip(PACKAGES[kind])
    return kind


@pytest.mark.parametrize("kind", Compression)
def test_every_body_inflates_again(kind: Compression) -> None:
    kind = installed(kind)
    for body in (b"", BODY):
        assert decompress(compress(body, kind), kind.sys_flag) == body


def test_javas_zlib_stream_inflates() -> None:
    """Goal: no type bits mean zlib (before 4.9), 0x300 too; other bits of the sysFlag do not matter."""
    stream = bytes.fromhex("785E4B4C240E000036EB0F29")
    for sys_flag in (0x1, 0x301, 0x1 | 0x8 | 0x30):
        assert decompress(stream, sys_flag) == b"a" * 40


def test_a_body_that_is_not_compressed_stays() -> None:
    assert decompress(b"plain", 0x300) == b"plain"
    assert compression_of(0) is None
    assert compression_of(0x101) is Compression.LZ4


@pytest.mark.parametrize("kind", Compression)
def test_damaged_and_cut_bodies_are_refused(kind: Compression) -> None:
    kind = installed(kind)
    stream = compress(BODY, kind)
    for bad in (b"", b"garbage", stream[:-2], stream[: len(stream) // 2]):
        with pytest.raises(RemoteProtocolError):
            decompress(bad, kind.sys_flag)


@pytest.mark.parametrize("kind", Compression)
def test_a_body_may_not_grow_without_limit(kind: Compression) -> None:
    """Goal: a few bytes that claim to be megabytes cost neither the memory nor the process."""
    kind = installed(kind)
    with pytest.raises(RemoteProtocolError, match="100000"):
        decompress(compress(bytes(10_000_000), kind), kind.sys_flag, inflated_bytes_max=100_000)


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="0x400"):
        decompress(b"", 0x401)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingCodecError, match="pip install zstandard"):
        compress(b"x", Compression.ZSTD)
    with pytest.raises(MissingCodecError):
        decompress(b"x", Compression.ZSTD.sys_flag)
    assert importlib.import_module("rocketq.protocol.compression")
