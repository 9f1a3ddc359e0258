"""Frames: encoding and decoding of commands, with both forms of the header.

    frame = L i32           number of bytes that follow, at most 16 MiB - 4
            T u8, H u24     header form (0 JSON, 1 binary) and header length
            header          H bytes
            body            L - 4 - H bytes, may be empty

JSON form:

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":3,
     "serializeTypeCurrentRPC":"JSON","version":355}

Reading is tolerant because clients differ: numbers may be strings, ext values may be numbers or booleans. Writing is
strict: ext values are strings, and there is no whitespace.

Binary ("ROCKETMQ") form, big-endian:

    header = code i16, language u8, version i16, opaque i32, flag i32,
             remark-length i32, remark, ext-length i32, *entry
    entry  = key-length i16, key, value-length i32, value

A length of 0 means "none". Of two equal keys the last one is used.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.kernel.request_view import RequestView
from rocketq.protocol.codes import POP_CODES
from rocketq.protocol.command import JAVA_MEMBERS, Command, HeaderForm
from rocketq.protocol.fastjson import dumps, loads
from rocketq.protocol.flags import CommandFlag, Language

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""Of a whole frame, its length field included; Apache closes the connection beyond it."""

HEADER_BYTES_MAX: Final = 128 * 1024
"""Default limit of a received header. The largest one Apache's clients send has 32 KiB of properties, escaped."""
RELAXED_HEADER_BYTES_MAX: Final = 4 * 1024
"""Longer JSON headers must be strict JSON: fastjson's dialect is parsed in Python, about 1 MB per second."""
EXT_FIELDS_MAX: Final = 1024
_HEADER_BYTES_LIMIT = 0xFFFFFF  # of the length field


class FrameDecoder:
    """Bytes in, commands out.

    Where the stream is cut does not matter. After bytes that are no frame the decoder is finished: commands that were
    complete before them are still returned, `failure` is set, and every later `feed` raises it.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = _HEADER_BYTES_LIMIT) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._pending = bytearray()
        self._view = RequestView()
        self.failure: RemoteProtocolError | None = None

    def feed(self, chunk: bytes) -> list[Command]:
        """Absorb bytes; return every command they complete, in order. Never awaits."""
        if self.failure is not None:
            raise RemoteProtocolError(str(self.failure))
        commands: list[Command] = []
        try:
            if self._pending:
                self._pending += chunk
                del self._pending[: self._take_commands(self._pending, commands)]
            else:  # whole frames are decoded where they are
                end = self._take_commands(chunk, commands)
                if end < len(chunk):
                    self._pending += chunk[end:] if end else chunk
        except RemoteProtocolError as failure:
            self.failure = RemoteProtocolError(str(failure))  # a raised one keeps the data of its stack frames
            self._pending.clear()
            if not commands:
                raise
        return commands

    @property
    def pending_bytes(self) -> int:
        """How much of an unfinished frame is held."""
        return len(self._pending)

    def _take_commands(self, data: bytes | bytearray, commands: list[Command]) -> int:
        """Decode the whole frames; where the last of them ends."""
        at, end = 0, len(data)
        while (size := self._frame_size(data, at, end)) is not None and at + 4 + size <= end:
            frame_end = at + 4 + size
            if isinstance(data, bytes):
                frame = data[at + 4 : frame_end]
            else:
                with memoryview(data) as view, view[at + 4 : frame_end] as part:
                    frame = bytes(part)
            commands.append(decode_command(frame, self._view))
            at = frame_end
        return at

    def _frame_size(self, data: bytes | bytearray, at: int, end: int) -> int | None:
        """The announced size of the frame at this place, None while unknown; checked before more is buffered."""
        if end - at < 4:
            return None
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        if not 4 < size <= self._frame_bytes_max - 4:
            raise RemoteProtocolError(f"a frame announces {size} bytes, outside 5..{self._frame_bytes_max - 4}")
        header_bytes = int.from_bytes(data[at + 5 : at + 8], "big")
        if header_bytes > self._header_bytes_max and end - at >= 8:
            raise RemoteProtocolError(f"a header of {header_bytes} bytes exceeds the limit of {self._header_bytes_max}")
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
    if len(header) > _HEADER_BYTES_LIMIT or size > frame_bytes_max - 4:
        raise LocalProtocolError(f"a frame of {size + 4} bytes is over the limit of {frame_bytes_max}")
    return b"".join((size.to_bytes(4, "big"), (command.form << 24 | len(header)).to_bytes(4, "big"), header))


_TEXTS = frozenset({str})
_ABSENT: tuple[Any, ...] = (None, 0, "", {}, "JAVA", "JSON")  # what a missing member means


def encode_json_header(command: Command) -> bytes:
    if command.json_members is None:
        return dumps(_java_members(command))
    values = {
        "code": int(command.code),
        "extFields": _ext_out(command),
        "flag": int(command.flag),
        "language": command.language.name,
        "opaque": command.opaque,
        "remark": "" if command.remark is None else command.remark,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    return dumps({name: values[name] for name in _members_to_write(command, values) if values[name] is not None})


def _java_members(command: Command) -> dict[str, Any]:
    """In the order of JAVA_MEMBERS; what is absent is left out."""
    members: dict[str, Any] = {"code": int(command.code)}
    if command.ext_fields:
        members["extFields"] = command.ext_fields if type(command.ext_fields) is dict else dict(command.ext_fields)
    members["flag"] = int(command.flag)
    members["language"] = command.language.name
    members["opaque"] = command.opaque
    if command.remark is not None:
        members["remark"] = command.remark
    members["serializeTypeCurrentRPC"] = "JSON"
    members["version"] = command.version
    return members


def decode_json_header(data: bytes, body: bytes) -> Command:
    """The command of these header bytes; RemoteProtocolError when they are no header. A request with members of wrong
    kinds that can still be answered is one with a fault."""
    members = loads(data, relaxed_chars_max=RELAXED_HEADER_BYTES_MAX)
    if not isinstance(members, dict):
        raise RemoteProtocolError("a JSON header must be an object")
    try:
        return _command_of_members(members, body)
    except RemoteProtocolError as error:
        opaque, flag = _header_number(members, "opaque"), _header_number(members, "flag")
        if flag & CommandFlag.RESPONSE or members.get("opaque") is None:
            raise
        return Command(code=0, opaque=opaque, flag=flag, version=0, form=HeaderForm.JSON, fault=str(error))


def _command_of_members(members: dict[Any, Any], body: bytes) -> Command:
    return Command(
        code=_header_number(members, "code"),
        opaque=_header_number(members, "opaque"),
        flag=_header_number(members, "flag"),
        language=_language(members.get("language", "JAVA")),
        version=_header_number(members, "version"),
        remark=_json_text(members.get("remark")) or None,
        ext_fields=_ext_in(members.get("extFields")),
        body=body,
        form=HeaderForm.JSON,
        json_members=_members_in(members),
    )


_usual_members: dict[tuple[str, ...], bool] = {}
_USUAL_MAX = 64


def _members_in(members: dict[Any, Any]) -> tuple[str, ...]:
    """The members we know in their order. Few orders are in use, so whether one has others is remembered."""
    names = tuple(members)
    usual = _usual_members.get(names)
    if usual is None:
        usual = all(name in JAVA_MEMBERS for name in names)
        if len(_usual_members) < _USUAL_MAX:
            _usual_members[names] = usual
    if usual and None not in members.values():
        return names
    return tuple(name for name in members if name in JAVA_MEMBERS and members[name] is not None)


def _members_to_write(command: Command, values: dict[str, Any]) -> tuple[str, ...]:
    """Which members to write: those that came, in their order, and what was set since."""
    assert command.json_members is not None
    late = (name for name in JAVA_MEMBERS if name not in command.json_members and values[name] not in _ABSENT)
    return (*command.json_members, *late)


def _ext_out(command: Command) -> dict[str, str] | None:
    """Empty ext fields are left out, unless a received header had them."""
    return dict(command.ext_fields) if command.ext_fields or command.json_members else None


def _header_number(members: dict[Any, Any], name: str) -> int:
    value = members.get(name)
    if type(value) is int and -0x80000000 <= value <= 0x7FFFFFFF:
        return value
    if value is None:
        return 0
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if type(number) is not int or not -0x80000000 <= number <= 0x7FFFFFFF:
        raise RemoteProtocolError(f"header member {name} is not a 32-bit number: {str(value)[:40]!r}")
    return number


def _language(value: Any) -> Language:
    """By name or by number; what we do not know is OTHER."""
    if type(value) is str:
        return _LANGUAGES_BY_NAME.get(value, Language.OTHER)
    try:
        return Language(value)
    except ValueError:
        return Language.OTHER


def _ext_in(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemoteProtocolError("extFields must be an object")
    if len(value) > EXT_FIELDS_MAX:
        raise RemoteProtocolError(f"a header has {len(value)} ext fields, the limit is {EXT_FIELDS_MAX}")
    if {*map(type, value.values()), *map(type, value)} <= _TEXTS:
        return value
    return {_field_name(name): _json_text(item) for name, item in value.items() if item is not None}


def _field_name(name: Any) -> str:
    if not isinstance(name, str):
        raise RemoteProtocolError("an ext field's name must be text")
    return name


def _json_text(value: Any) -> str:
    """The text Java would have sent: C++ and Node clients send bare numbers and booleans."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()


_FIXED = Struct(">hBhiii")
_I32 = Struct(">i")
_I16 = Struct(">h")

# Newer requests have codes past 16 bits. Java cuts them off; no other request has the numbers that remain.
_CUT_CODES: dict[int, int] = {code & 0xFFFF: code for code in POP_CODES}
_CODE_CUTS: dict[int, int] = {code: cut for cut, code in _CUT_CODES.items()}


def encode_binary_header(command: Command) -> bytes:
    remark = (command.remark or "").encode("utf-8", "replace")
    entries = b"".join(_encode_entry(key, value) for key, value in command.ext_fields.items())
    code = int(command.code) if command.is_response else _CODE_CUTS.get(command.code, int(command.code))
    try:
        fixed = _FIXED.pack(code, command.language, command.version, command.opaque, command.flag, len(remark))
    except error:
        raise LocalProtocolError(f"a binary header cannot carry {command!r:.200}") from None
    return b"".join((fixed, remark, _I32.pack(len(entries)), entries))


def decode_binary_header(data: bytes, body: bytes) -> Command:
    """The command of these header bytes; RemoteProtocolError when they are cut off or contradict themselves."""
    try:
        code, language, version, opaque, flag, remark_bytes = _FIXED.unpack_from(data)
        remark_end = _checked_end(data, _FIXED.size, remark_bytes)
        (ext_bytes,) = _I32.unpack_from(data, remark_end)
        ext_start = remark_end + 4
        return Command(
            code=whole_code(code, flag),
            opaque=opaque,
            flag=flag,
            language=_LANGUAGES_BY_NUMBER.get(language, Language.OTHER),
            version=version,
            remark=_binary_text(data, _FIXED.size, remark_end) or None,
            ext_fields=_decode_entries(data, ext_start, _checked_end(data, ext_start, ext_bytes)),
            body=body,
            form=HeaderForm.BINARY,
        )
    except error as cause:
        raise RemoteProtocolError(f"a binary header is cut off: {cause}") from None


def whole_code(code: int, flag: int) -> int:
    """The code of a command whose header has 16 bits for it."""
    return code if flag & CommandFlag.RESPONSE else _CUT_CODES.get(code, code)


def _encode_entry(key: str, value: str) -> bytes:
    raw_key, raw_value = key.encode("utf-8", "replace"), value.encode("utf-8", "replace")
    if len(raw_key) > 0x7FFF:
        raise LocalProtocolError(f"an ext field's name is too long for a binary header: {key[:40]!r}...")
    return b"".join((_I16.pack(len(raw_key)), raw_key, _I32.pack(len(raw_value)), raw_value))


def _decode_entries(data: bytes, at: int, end: int) -> dict[str, str]:
    fields: dict[str, str] = {}
    entries = 0
    while at < end:
        entries += 1
        if entries > EXT_FIELDS_MAX:
            raise RemoteProtocolError(f"a header has more than {EXT_FIELDS_MAX} ext fields")
        (key_bytes,) = _I16.unpack_from(data, at)
        key_end = _checked_end(data, at + 2, key_bytes)
        (value_bytes,) = _I32.unpack_from(data, key_end)
        value_end = _checked_end(data, key_end + 4, value_bytes)
        fields[_binary_text(data, at + 2, key_end)] = _binary_text(data, key_end + 4, value_end)
        at = value_end
    if at != end:
        raise RemoteProtocolError("a binary header's last ext field runs past its block")
    return fields


def _checked_end(data: bytes, start: int, length: int) -> int:
    if length < 0 or start + length > len(data):
        raise RemoteProtocolError(f"a binary header announces {length} bytes at {start} of {len(data)}")
    return start + length


def _binary_text(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode("utf-8")
    except UnicodeDecodeError as cause:
        raise RemoteProtocolError(f"a binary header is not UTF-8 at byte {start + cause.start}") from None
