"""Frames: how commands lie on the wire.

frame = L i32           bytes that follow, at most 16 MiB - 4
        T u8, H u24     header form (0 JSON, 1 binary) and header length
        header          H bytes
        body            L - 4 - H bytes, may be none
"""

from __future__ import annotations

from typing import Any, Final

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.kernel.request_view import RequestView
from rocketq.protocol.binary_header import decode_binary_header, encode_binary_header, whole_code
from rocketq.protocol.command import JAVA_MEMBERS, Command, HeaderForm
from rocketq.protocol.flags import Language
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
        self._view = RequestView()
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
            commands.append(decode_command(bytes(self._pending[at + 4 : at + 4 + size]), self._view))
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


Parts = tuple[int, int, int, int, str | int, str, dict[str, str], bytes, int]
"""What RequestView.command_parts() gives of a frame."""

_LANGUAGES_BY_NAME: Final = {language.name: language for language in Language}
_LANGUAGES_BY_NUMBER: Final = {int(language): language for language in Language}
_member_orders: dict[int, tuple[str, ...]] = {}  # by their digits; clients use few orders
_MEMBER_ORDERS_MAX: Final = 256


def decode_command(frame: bytes, view: Any = None) -> Command:
    """The command of a frame without its length field. `view` is a RequestView that may be used for it."""
    view = RequestView() if view is None else view
    parts = view.command_parts(frame) if view.parse_frame(frame) else None
    return _decode_leniently(frame) if parts is None else command_of(parts)


def command_of(parts: Parts) -> Command:
    """The command that the kernel has parsed."""
    code, flag, opaque, version, language, remark, ext_fields, body, members = parts
    if isinstance(language, int):
        return Command(
            code=whole_code(code, flag),
            opaque=opaque,
            flag=flag,
            language=_LANGUAGES_BY_NUMBER.get(language, Language.OTHER),
            version=version,
            remark=remark or None,
            ext_fields=ext_fields,
            body=body,
            form=HeaderForm.BINARY,
        )
    return Command(
        code=code,
        opaque=opaque,
        flag=flag,
        language=_LANGUAGES_BY_NAME.get(language, Language.OTHER),
        version=version,
        remark=remark or None,
        ext_fields=ext_fields,
        body=body,
        json_members=_member_orders.get(members) or _order_of(members),
    )


def _order_of(members: int) -> tuple[str, ...]:
    """The names of a JSON header's members, a hex digit each."""
    order = tuple(JAVA_MEMBERS[int(digit) - 1] for digit in f"{members:x}") if members else ()
    if len(_member_orders) < _MEMBER_ORDERS_MAX:
        _member_orders[members] = order
    return order


def _decode_leniently(frame: bytes) -> Command:
    """What the kernel does not parse: fastjson's dialect, very many fields, and what is wrong."""
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
