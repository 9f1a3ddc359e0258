"""A message's properties as bytes.

    properties = *( name 0x01 value 0x02 )      the last 0x02 may be missing (4.9.x leaves it out)

Names and values are UTF-8 and not empty; a value may hold 0x01 but never 0x02. Of two equal names the last counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketq.errors import LocalProtocolError

PROPERTIES_BYTES_MAX = 32767

_NAME_END = "\x01"
_VALUE_END = "\x02"


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of the properties in their order; empty values are left out, since no reader would keep them."""
    items = []
    for name, value in properties.items():
        if value:
            if type(name) is not str or type(value) is not str or not name or _NAME_END in name or _VALUE_END in name:
                _check_item(name, value)
            items.append(f"{name}{_NAME_END}{value}{_VALUE_END}")
    text = "".join(items)
    if text.count(_VALUE_END) != len(items):
        for name, value in properties.items():
            _check_item(name, value)
    return text.encode("utf-8", "replace")


def decode_properties(data: bytes) -> dict[str, str]:
    """The properties in these bytes; items without a name or a value are dropped, as Apache does."""
    return split_properties(str(data, "utf-8", "replace"))


def split_properties(text: str) -> dict[str, str]:
    """The same of their text."""
    properties = {}
    for item in text.split(_VALUE_END):
        name, _, value = item.partition(_NAME_END)
        if name and value:
            properties[name] = value
    return properties


def append_missing(data: bytes, additions: Mapping[str, str]) -> bytes:
    """Append properties whose names are missing; existing bytes are kept."""
    present = decode_properties(data)
    missing = encode_properties({name: value for name, value in additions.items() if name not in present})
    if data and missing and not data.endswith(b"\x02"):
        return data + b"\x02" + missing
    return data + missing


def _check_item(name: str, value: str) -> None:
    if not isinstance(name, str) or not isinstance(value, str):
        raise LocalProtocolError(f"names and values of properties are text: {name!r}={value!r}")
    if not name:
        raise LocalProtocolError(f"a property needs a name: {value[:40]!r}")
    if _NAME_END in name or _VALUE_END in name or _VALUE_END in value:
        raise LocalProtocolError(f"a property cannot carry its own separators: {name!r}={value[:40]!r}")
