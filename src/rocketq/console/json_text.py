"""Values as JSON text. Whole numbers beyond 2^53, which JavaScript cannot hold, become decimal text."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from enum import Enum, IntEnum
from typing import Any, Final

SAFE_INTEGER: Final = (1 << 53) - 1


def plain(value: Any) -> Any:
    """Frozen values as JSON's own."""
    if value is None or isinstance(value, (str, bool, float)):
        return value.value if isinstance(value, Enum) else value
    if isinstance(value, IntEnum):
        return value.name.lower()
    if isinstance(value, int):
        return value if -SAFE_INTEGER <= value <= SAFE_INTEGER else str(value)
    if isinstance(value, Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "replace")
    return str(value)


def to_json(value: Any) -> bytes:
    return json.dumps(plain(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
