"""The JSON form of a header.

    {"code":105,"extFields":{"topic":"T"},"flag":0,"language":"JAVA","opaque":3,
     "serializeTypeCurrentRPC":"JSON","version":355}

Reading is tolerant as clients need it: numbers may be texts and ext values numbers or booleans. Writing is strict:
ext values are always texts, and there is no whitespace.
"""

from __future__ import annotations

from typing import Any

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.command import JAVA_MEMBERS, Command, HeaderForm
from rocketq.protocol.fastjson import dumps, loads
from rocketq.protocol.flags import CommandFlag, Language

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
    return dumps({name: values[name] for name in _members(command, values) if values[name] is not None})


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
    members = loads(data)
    if not isinstance(members, dict):
        raise RemoteProtocolError("a JSON header must be an object")
    try:
        return _command(members, body)
    except RemoteProtocolError as error:
        opaque, flag = _number(members, "opaque"), _number(members, "flag")
        if flag & CommandFlag.RESPONSE or members.get("opaque") is None:
            raise
        return Command(code=0, opaque=opaque, flag=flag, version=0, form=HeaderForm.JSON, fault=str(error))


def _command(members: dict[Any, Any], body: bytes) -> Command:
    return Command(
        code=_number(members, "code"),
        opaque=_number(members, "opaque"),
        flag=_number(members, "flag"),
        language=_language(members.get("language", "JAVA")),
        version=_number(members, "version"),
        remark=_text(members.get("remark")) or None,
        ext_fields=_ext_in(members.get("extFields")),
        body=body,
        form=HeaderForm.JSON,
        json_members=_members_in(members),
    )


_LANGUAGES = {language.name: language for language in Language}
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


def _members(command: Command, values: dict[str, Any]) -> tuple[str, ...]:
    """Which members to write: those that came, in their order, and what was set since."""
    assert command.json_members is not None
    late = (name for name in JAVA_MEMBERS if name not in command.json_members and values[name] not in _ABSENT)
    return (*command.json_members, *late)


def _ext_out(command: Command) -> dict[str, str] | None:
    """Empty ext fields are left out, unless a received header had them."""
    return dict(command.ext_fields) if command.ext_fields or command.json_members else None


def _number(members: dict[Any, Any], name: str) -> int:
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
        return _LANGUAGES.get(value, Language.OTHER)
    try:
        return Language(value)
    except ValueError:
        return Language.OTHER


def _ext_in(value: Any) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemoteProtocolError("extFields must be an object")
    if {*map(type, value.values()), *map(type, value)} <= _TEXTS:
        return value
    return {_field_name(name): _text(item) for name, item in value.items() if item is not None}


def _field_name(name: Any) -> str:
    if not isinstance(name, str):
        raise RemoteProtocolError("an ext field's name must be text")
    return name


def _text(value: Any) -> str:
    """The text Java would have sent: C++ and Node clients send bare numbers and booleans."""
    if isinstance(value, str):
        return value
    return "" if value is None else dumps(value).decode()
