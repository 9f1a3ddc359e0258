"""The names of an archive's files, and their entries in the manifest.

archive := topic=<topic>/dt=<date>/<name>.parquet        messages, in Hive's layout; names as Spark escapes them
           _archive/keys/<name>.arrow                    hashes of the keys and ids in a file, and their rows
           _archive/commits/<number>.json                what was added and removed, one after the other
           _archive/staging/<run>/...                    the same names before they are committed
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

HOME: Final = "_archive"
KEYS: Final = f"{HOME}/keys"
COMMITS: Final = f"{HOME}/commits"
STAGING: Final = f"{HOME}/staging"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """One Parquet file of one topic and day (UTC, by store time). Times and log offsets are those of its messages."""

    path: str
    keys_path: str
    topic: str
    date: str
    rows: int
    size_bytes: int
    first_ms: int
    last_ms: int
    log_low: int
    log_high: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def data_path(topic: str, date: str, name: str) -> str:
    return f"topic={escaped(topic)}/dt={date}/{name}.parquet"


def keys_path(name: str) -> str:
    return f"{KEYS}/{name}.arrow"


def escaped(value: str) -> str:
    """A partition's value as Spark and Hive write it into a path."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in value)
