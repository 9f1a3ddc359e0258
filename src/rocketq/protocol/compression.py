"""Compressed message bodies.

Bit 0 of the sysFlag marks a compressed body, bits 8 to 10 give the type. No type means zlib, as before 4.9. lz4 and
zstd need the packages `lz4` and `zstandard`, which are imported on first use.
"""

from __future__ import annotations

import importlib
import zlib
from enum import IntEnum
from typing import Any, Final

from rocketq.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from rocketq.model import SysFlag

INFLATED_BYTES_MAX: Final = 256 * 1024 * 1024
"""A body may not grow past this; Apache has no limit, and a few KB can claim to be gigabytes."""


_ZSTD_PIECE_BYTES = 1024


class Compression(IntEnum):
    """Bits 8 to 10 of a sysFlag."""

    LZ4 = SysFlag.COMPRESSION_LZ4
    ZSTD = SysFlag.COMPRESSION_ZSTD
    ZLIB = SysFlag.COMPRESSION_ZLIB

    @property
    def sys_flag(self) -> int:
        """The bits a message with such a body carries."""
        return SysFlag.COMPRESSED | self


class MissingCodecError(ProtocolError):
    """A package for this kind of compression is not installed."""


def compression_of(sys_flag: int) -> Compression | None:
    """How a body with this sysFlag is compressed; None when it is not."""
    if not sys_flag & SysFlag.COMPRESSED:
        return None
    kind = sys_flag & SysFlag.COMPRESSION_MASK
    try:
        return Compression(kind) if kind else Compression.ZLIB
    except ValueError:
        raise RemoteProtocolError(f"unknown compression {kind:#x}") from None


def compress(body: bytes, kind: Compression = Compression.ZLIB, *, level: int = 5) -> bytes:
    match kind:
        case Compression.ZLIB:
            return zlib.compress(body, level)
        case Compression.LZ4:
            return bytes(_load("lz4.frame", "lz4").compress(body))
        case Compression.ZSTD:
            return bytes(_load("zstandard", "zstandard").ZstdCompressor(level=level).compress(body))
    raise LocalProtocolError(f"unknown compression {kind!r}")


def decompress(body: bytes, sys_flag: int, *, inflated_bytes_max: int = INFLATED_BYTES_MAX) -> bytes:
    """The decompressed body by its sysFlag; unchanged when it is not compressed."""
    kind = compression_of(sys_flag)
    if kind is None:
        return body
    stream = _stream(kind)
    try:
        inflated = stream.decompress(body, inflated_bytes_max)
    except (zlib.error, RuntimeError, ValueError, EOFError) as error:  # RuntimeError is lz4's
        raise RemoteProtocolError(f"a {kind.name} body cannot be decompressed: {error}") from None
    if not stream.eof:
        raise RemoteProtocolError(f"a {kind.name} body is truncated or exceeds {inflated_bytes_max} bytes")
    return bytes(inflated)


def _stream(kind: Compression) -> Any:
    """An object with `decompress(data, bytes_max)` and `eof`."""
    match kind:
        case Compression.ZLIB:
            return zlib.decompressobj()
        case Compression.LZ4:
            return _load("lz4.frame", "lz4").LZ4FrameDecompressor()
    return _ZstdStream(_load("zstandard", "zstandard"))


class _ZstdStream:
    """zstandard has no output limit per call; small input pieces bound how far a hostile body can grow."""

    def __init__(self, module: Any) -> None:
        self._error: type[Exception] = module.ZstdError
        self._inflater = module.ZstdDecompressor().decompressobj()

    @property
    def eof(self) -> bool:
        return bool(self._inflater.eof)

    def decompress(self, data: bytes, bytes_max: int) -> bytes:
        pieces, total = [], 0
        for at in range(0, len(data), _ZSTD_PIECE_BYTES):
            pieces.append(self._inflate(data[at : at + _ZSTD_PIECE_BYTES]))
            total += len(pieces[-1])
            if total > bytes_max:
                raise ValueError(f"over {bytes_max} bytes")
            if self.eof:
                break
        return b"".join(pieces)

    def _inflate(self, piece: bytes) -> bytes:
        try:
            return bytes(self._inflater.decompress(piece))
        except self._error as error:
            raise ValueError(str(error)) from None


def _load(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise MissingCodecError(f"this message body needs the package {package!r}: pip install {package}") from None
