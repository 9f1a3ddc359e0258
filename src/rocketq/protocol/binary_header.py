"""The binary ("ROCKETMQ") form of a header, big-endian.

    header = code i16, language u8, version i16, opaque i32, flag i32,
             remark-length i32, remark, ext-length i32, *entry
    entry  = key-length i16, key, value-length i32, value

A length of 0 stands for "none". Of two equal keys the last counts.
"""

from __future__ import annotations

from struct import Struct, error

from rocketq.errors import LocalProtocolError, RemoteProtocolError
from rocketq.protocol.codes import POP_CODES
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import CommandFlag, Language

_FIXED = Struct(">hBhiii")
_I32 = Struct(">i")
_I16 = Struct(">h")
_LANGUAGES = {int(language): language for language in Language}

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
        remark_end = _end(data, _FIXED.size, remark_bytes)
        (ext_bytes,) = _I32.unpack_from(data, remark_end)
        ext_start = remark_end + 4
        return Command(
            code=whole_code(code, flag),
            opaque=opaque,
            flag=flag,
            language=_LANGUAGES.get(language, Language.OTHER),
            version=version,
            remark=_text(data, _FIXED.size, remark_end) or None,
            ext_fields=_decode_entries(data, ext_start, _end(data, ext_start, ext_bytes)),
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
    fields = {}
    while at < end:
        (key_bytes,) = _I16.unpack_from(data, at)
        key_end = _end(data, at + 2, key_bytes)
        (value_bytes,) = _I32.unpack_from(data, key_end)
        value_end = _end(data, key_end + 4, value_bytes)
        fields[_text(data, at + 2, key_end)] = _text(data, key_end + 4, value_end)
        at = value_end
    if at != end:
        raise RemoteProtocolError("a binary header's last ext field runs past its block")
    return fields


def _end(data: bytes, start: int, length: int) -> int:
    if length < 0 or start + length > len(data):
        raise RemoteProtocolError(f"a binary header announces {length} bytes at {start} of {len(data)}")
    return start + length


def _text(data: bytes, start: int, end: int) -> str:
    try:
        return data[start:end].decode("utf-8")
    except UnicodeDecodeError as cause:
        raise RemoteProtocolError(f"a binary header is not UTF-8 at byte {start + cause.start}") from None
