"""Frames: how commands lie on the wire.

frame = L i32           bytes that follow, at most 16 MiB - 4
        T u8, H u24     header form (0 JSON, 1 binary) and header length
        header          H bytes
        body            L - 4 - H bytes, may be none
"""

from __future__ import annotations

from typing import Final

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.protocol.binary_header import decode_binary_header, encode_binary_header
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.json_header import decode_json_header, encode_json_header

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a whole frame, its length field included; Apache closes the connection beyond it."""

_HEADER_BYTES_MAX = 0xFFFFFF


class FrameDecoder:
    """Bytes in, commands out.

    Where the stream is cut does not matter. After bytes that are no frame the decoder is finished: commands that were
    complete before them are still returned, `failure` is set, and every later `feed` raises it.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._pending = bytearray()
        self.failure: RemoteProtocolError | None = None

    def feed(self, chunk: bytes) -> list[Command]:
        """Absorb bytes; return every command they complete, in order. Never awaits."""
        if self.failure is not None:
            raise self.failure
        self._pending += chunk
        commands: list[Command] = []
        try:
            self._take_commands(commands)
        except RemoteProtocolError as failure:
            self.failure = failure
            self._pending.clear()
            if not commands:
                raise
        return commands

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return len(self._pending)

    def _take_commands(self, commands: list[Command]) -> None:
        at = 0
        while (size := self._frame_size(at)) is not None and at + 4 + size <= len(self._pending):
            commands.append(decode_command(bytes(self._pending[at + 4 : at + 4 + size])))
            at += 4 + size
        del self._pending[:at]

    def _frame_size(self, at: int) -> int | None:
        """The announced size of the frame at this place, None while unknown; checked before more is buffered."""
        if len(self._pending) - at < 4:
            return None
        size = int.from_bytes(self._pending[at : at + 4], "big", signed=True)
        if not 4 < size <= self._frame_bytes_max - 4:
            raise RemoteProtocolError(f"a frame announces {size} bytes, outside 5..{self._frame_bytes_max - 4}")
        return size


def decode_command(frame: bytes) -> Command:
    """The command of a frame without its length field."""
    if len(frame) < 4:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes has no room for a header")
    form, end = frame[0], 4 + int.from_bytes(frame[1:4], "big")
    if end > len(frame):
        raise RemoteProtocolError(f"a header of {end - 4} bytes in a frame of {len(frame)}")
    match form:
        case HeaderForm.JSON:
            return decode_json_header(frame[4:end], frame[end:])
        case HeaderForm.BINARY:
            return decode_binary_header(frame[4:end], frame[end:])
    raise RemoteProtocolError(f"unknown header form {form}")


def encode_command(command: Command, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The whole frame of a command, its length field included."""
    return encode_head(command, len(command.body), frame_bytes_max=frame_bytes_max) + command.body


def encode_head(command: Command, body_bytes: int, *, frame_bytes_max: int = FRAME_BYTES_MAX) -> bytes:
    """The frame up to its body, for a body of this size that is written separately."""
    encode = encode_binary_header if command.form is HeaderForm.BINARY else encode_json_header
    header = encode(command)
    size = 4 + len(header) + body_bytes
    if len(header) > _HEADER_BYTES_MAX or size > frame_bytes_max - 4:
        raise LocalProtocolError(f"a frame of {size + 4} bytes is over the limit of {frame_bytes_max}")
    return b"".join((size.to_bytes(4, "big"), (command.form << 24 | len(header)).to_bytes(4, "big"), header))
