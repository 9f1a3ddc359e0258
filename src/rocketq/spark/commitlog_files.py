"""The log files that paths name: store directories, commitlog directories, single files; in use or copied."""

from __future__ import annotations

import glob
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rocketq.kernel.records import MAGIC_V1, MAGIC_V2
from rocketq.model import SysFlag
from rocketq.spark.errors import SparkError
from rocketq.store.log_reader import ChainedFile
from rocketq.store.segments import NAME_DIGITS

_HEAD: Final = struct.Struct(">ii20xqi")
_HEAD_BYTES: Final = 80
_STORE_MS_AT, _HOST_V4_BYTES, _HOST_V6_BYTES = 48, 8, 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """A non-empty file. `next_base` is the start of the next file of its log, None for the last."""

    path: str
    base: int
    size_bytes: int
    first_store_ms: int | None
    next_base: int | None = None
    next_store_ms: int | None = None


def find_log_files(paths: Sequence[str]) -> list[LogFile]:
    """All files of these paths, grouped by log and in order; SparkError for a path that is no log."""
    if not paths:
        raise SparkError("no path: give load() a store directory, its commitlog directory or files of it")
    folders: dict[Path, list[Path]] = {}
    for each in paths:
        for file in _files_of(each):
            own = folders.setdefault(file.parent, [])
            own += [] if file in own else [file]
    return [file for folder in sorted(folders) for file in _one_log(folders[folder])]


def _files_of(given: str) -> list[Path]:
    parts = urlsplit(given)
    if parts.scheme not in ("", "file"):
        raise SparkError(f"{given}: store files are read from the file system of each node, not from {parts.scheme}")
    text = unquote(parts.path) if parts.scheme == "file" else given
    found = sorted(glob.glob(text)) if glob.has_magic(text) and not Path(text).exists() else [text]
    if not found:
        raise SparkError(f"{given} matches nothing")
    return [file for each in found for file in _expanded(Path(each).absolute())]


def _expanded(path: Path) -> list[Path]:
    if not path.exists():
        raise SparkError(f"{path} does not exist")
    if path.is_file():
        return [path]
    for folder in (path / "commitlog", path):
        named = [each for each in folder.iterdir() if _is_named_by_offset(each)] if folder.is_dir() else []
        if named or (folder.is_dir() and folder.name == "commitlog"):
            return named
    raise SparkError(f"{path} is no store: there is no commitlog directory in it and no file named by a log offset")


def _is_named_by_offset(path: Path) -> bool:
    return len(path.name) == NAME_DIGITS and path.name.isdigit() and path.is_file()


def _one_log(paths: Iterable[Path]) -> list[LogFile]:
    """Files that hold nothing yet were made ahead of the log's end and are left out."""
    files = sorted((file for path in paths if (file := _look_at(path)) is not None), key=lambda file: file.base)
    linked = [replace(a, next_base=b.base, next_store_ms=b.first_store_ms) for a, b in pairwise(files)]
    return [*linked, *files[-1:]]


def _look_at(path: Path) -> LogFile | None:
    try:
        with open(path, "rb") as file:
            head = file.read(_HEAD_BYTES)
            size = file.seek(0, 2)
    except FileNotFoundError:
        return None  # aged out while we were looking
    except OSError as error:
        raise SparkError(f"{path} cannot be read: {error.strerror}") from None
    own_offset, store_ms = _first_record(head)
    if _is_named_by_offset(path):
        base = int(path.name)
        if not any(head[:8]) and ChainedFile(path, base).data_from(0) is None:
            return None
    elif own_offset is not None:
        base = own_offset
    else:
        raise SparkError(f"{path} is no log file: neither is its name a log offset nor does it begin with a record")
    return LogFile(str(path), base, size, store_ms if own_offset == base else None)


def _first_record(head: bytes) -> tuple[int | None, int | None]:
    """(log offset, store time) of a file's first record, unchecked; the reader checks it."""
    if len(head) < _HEAD_BYTES:
        return None, None
    _, magic, own_offset, sys_flag = _HEAD.unpack_from(head)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return None, None
    at = _STORE_MS_AT + (_HOST_V6_BYTES if sys_flag & SysFlag.BORN_HOST_V6 else _HOST_V4_BYTES)
    return own_offset, int.from_bytes(head[at : at + 8], "big", signed=True)


RANGE_BYTES: Final = 128 << 20
STORE_TIME_SLACK_MS: Final = 600_000
"""How far store times may run backwards between files: a clock that is set back must not hide messages."""


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The records of a file that start in [start, end)."""

    file: LogFile
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class StoreTimes:
    """Half-open; None is without a bound."""

    from_ms: int | None = None
    before_ms: int | None = None


ANY_TIME: Final = StoreTimes()


def plan_ranges(
    files: Iterable[LogFile],
    *,
    range_bytes: int = RANGE_BYTES,
    times: StoreTimes = ANY_TIME,
    slack_ms: int = STORE_TIME_SLACK_MS,
) -> list[ByteRange]:
    """Every byte of every file that can hold a record of these times, in pieces of equal size."""
    return [
        ByteRange(file, start, min(start + step, file.size_bytes))
        for file in files
        if _can_hold(file, times, slack_ms)
        for step in [_even_step(file.size_bytes, range_bytes)]
        for start in range(0, file.size_bytes, step)
    ]


def _even_step(size_bytes: int, range_bytes: int) -> int:
    pieces = max(1, -(-size_bytes // range_bytes))
    return max(1, -(-size_bytes // pieces))


def _can_hold(file: LogFile, times: StoreTimes, slack_ms: int) -> bool:
    """A file holds what was stored between its first record and the first of the next one."""
    first, following = file.first_store_ms, file.next_store_ms
    if times.before_ms is not None and first is not None and first - slack_ms >= times.before_ms:
        return False
    return not (times.from_ms is not None and following is not None and following + slack_ms < times.from_ms)
