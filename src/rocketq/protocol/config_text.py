"""`key=value` lines: the bodies of config requests (25, 26, 318, 319) and Apache's .conf files.

Read as Java reads properties: `#` and `!` start comments, `=`, `:` or blanks end a key, a backslash at the end of a
line continues it, and \\uXXXX is a character. Written as Apache's servers write it: one line each, nothing escaped.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, Final

from rocketq.errors import ConfigError, RemoteProtocolError

CONFIG_BYTES_MAX: Final = 64 * 1024
SUGGESTED_KEYS_MAX: Final = 5  # a search for a similar key takes about 1 ms
_KEY_CHARS_MAX = 64
_ENTRY = re.compile(r"((?:[^\\=:\s]|\\.)*)\s*[=:]?\s*(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_config(text: str) -> dict[str, str]:
    """The settings in their order; of two with one key the last wins."""
    settings = {}
    for line in _logical_lines(text):
        found = _ENTRY.fullmatch(line)
        assert found is not None  # the pattern takes any text
        settings[_unescape(found[1])] = _unescape(found[2])
    return settings


def decode_config(body: bytes) -> dict[str, str]:
    """The settings in a request's body; RemoteProtocolError when it is too large to be one."""
    if len(body) > CONFIG_BYTES_MAX:
        raise RemoteProtocolError(f"the config text has {len(body)} bytes, {CONFIG_BYTES_MAX} are allowed")
    try:
        return parse_config(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"the config text is not UTF-8 at byte {error.start}") from None


def format_config(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def parse_value(key: str, text: str, default: Any) -> Any:
    """A setting's value, of its default's type (None: a path); ConfigError names the key."""
    text = text.strip()
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text.lower()]
        if isinstance(default, int | float | Enum):
            return type(default)(text)
    except (KeyError, ValueError):
        raise ConfigError(f"{key}={text!r} is not {_kind(default)}") from None
    return Path(text) if default is None or isinstance(default, Path) else text


def _kind(default: bool | float | Enum) -> str:
    if isinstance(default, Enum):
        return " or ".join(str(member.value) for member in type(default))
    names = {bool: "true or false", int: "a whole number", float: "a number"}
    return names[type(default)]


def suggest_keys(unknown: Iterable[str], known: Collection[str]) -> str:
    """Unknown keys as text for a message, each with a similar known key."""
    by_lower = {key.lower(): key for key in known}
    parts: list[str] = []
    left = 0
    for key in unknown:
        if len(parts) >= SUGGESTED_KEYS_MAX:
            left += 1
            continue
        if len(key) > _KEY_CHARS_MAX:
            parts.append(f"{key[:_KEY_CHARS_MAX]}...")
            continue
        close = get_close_matches(key.lower(), by_lower, n=1, cutoff=0.75)
        parts.append(f"{key} (did you mean {by_lower[close[0]]}?)" if close else key)
    if left:
        parts.append(f"and {left} more")
    return ", ".join(parts)


def _logical_lines(text: str) -> Iterator[str]:
    parts: list[str] = []
    for raw in text.splitlines():
        line = raw.lstrip()
        if not parts and (not line or line[0] in "#!"):
            continue
        if (len(line) - len(line.rstrip("\\"))) % 2:
            parts.append(line[:-1])
            continue
        yield "".join((*parts, line))
        parts.clear()
    if parts:
        yield "".join(parts)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(_character, text) if "\\" in text else text


def _character(found: re.Match[str]) -> str:
    code = found[1]
    if len(code) == 5:
        return chr(int(code[1:], 16))
    if code == "u":
        raise RemoteProtocolError("bad \\u escape in a config text")
    return _CONTROLS.get(code, code)
