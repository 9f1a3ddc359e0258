"""Figures over time in SQLite: every sample for an hour, a minute's mean for a day, ten minutes' for a month."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

log = logging.getLogger(__name__)
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Level:
    """How long points of one resolution are kept."""

    step_s: int
    keep_s: int


LEVELS: Final = (Level(1, 3_600), Level(60, 86_400), Level(600, 30 * 86_400))
_PRUNE_S: Final = 60
_SCHEMA: Final = """
create table if not exists series (id integer primary key, name text not null unique);
create table if not exists points (
  level integer not null, series integer not null, at_s integer not null, value real not null,
  primary key (level, series, at_s)
) without rowid;
create table if not exists notes (name text primary key, value text not null) without rowid;
"""


class History:
    """All access happens on a dedicated thread, so that disk waits do not stop the event loop."""

    def __init__(self, path: Path, bytes_max: int) -> None:
        self._path = path
        self._bytes_max = bytes_max
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rocketq-history")
        self._ids: dict[str, int] = {}
        self._sums: list[dict[str, tuple[float, int]]] = [{} for _ in LEVELS]
        self._slots = [0] * len(LEVELS)
        self._pruned_s = 0
        self._db: sqlite3.Connection

    async def open(self) -> None:
        await self._run(self._open)

    async def add(self, at_s: int, values: Mapping[str, float]) -> None:
        """One sample of many series."""
        await self._run(lambda: self._add(at_s, values))

    async def read(self, names: Sequence[str], since_s: int, until_s: int) -> dict[str, list[tuple[int, float]]]:
        """Points by series, at the finest resolution that reaches back so far."""
        return await self._run(lambda: self._read(names, since_s, until_s))

    async def note(self, name: str) -> str | None:
        """A text that was kept under this name."""
        return await self._run(lambda: self._note(name))

    async def keep(self, name: str, value: str) -> None:
        await self._run(lambda: self._keep(name, value))

    async def notes(self, prefix: str) -> dict[str, str]:
        return await self._run(lambda: self._notes(prefix))

    async def drop(self, name: str) -> None:
        await self._run(lambda: self._drop(name))

    async def close(self) -> None:
        await self._run(self._db.close)
        self._thread.shutdown(wait=True)

    async def _run(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _open(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=normal")
        self._db.executescript(_SCHEMA)
        self._ids = dict(self._db.execute("select name, id from series"))

    def _add(self, at_s: int, values: Mapping[str, float]) -> None:
        self._db.execute("begin")
        try:
            self._insert(0, at_s, values)
            for level in range(1, len(LEVELS)):
                self._sum(level, at_s, values)
            self._db.execute("commit")
        except sqlite3.Error:
            self._db.execute("rollback")
            raise
        if at_s - self._pruned_s >= _PRUNE_S:
            self._pruned_s = at_s
            self._prune(at_s)

    def _sum(self, level: int, at_s: int, values: Mapping[str, float]) -> None:
        """Means are written when their slot of time is over."""
        step_s = LEVELS[level].step_s
        slot, sums = at_s // step_s, self._sums[level]
        if slot != self._slots[level] and sums:
            means = {name: total / count for name, (total, count) in sums.items()}
            self._insert(level, self._slots[level] * step_s, means)
            sums.clear()
        self._slots[level] = slot
        for name, value in values.items():
            total, count = sums.get(name, (0.0, 0))
            sums[name] = total + value, count + 1

    def _insert(self, level: int, at_s: int, values: Mapping[str, float]) -> None:
        rows = [(level, self._id(name), at_s, value) for name, value in values.items()]
        self._db.executemany("insert or replace into points values (?, ?, ?, ?)", rows)

    def _id(self, name: str) -> int:
        if name not in self._ids:
            cursor = self._db.execute("insert into series (name) values (?)", (name,))
            self._ids[name] = int(cursor.lastrowid or 0)
        return self._ids[name]

    def _prune(self, now_s: int) -> None:
        for level, each in enumerate(LEVELS):
            self._db.execute("delete from points where level = ? and at_s < ?", (level, now_s - each.keep_s))
        for level in range(len(LEVELS)):
            if self._bytes() <= self._bytes_max:
                return
            low, high = self._db.execute("select min(at_s), max(at_s) from points where level = ?", (level,)).fetchone()
            if low is not None:
                cut_s = low + (high - low) // 4
                self._db.execute("delete from points where level = ? and at_s <= ?", (level, cut_s))

    def _bytes(self) -> int:
        (pages,) = self._db.execute("pragma page_count").fetchone()
        (free,) = self._db.execute("pragma freelist_count").fetchone()
        (size,) = self._db.execute("pragma page_size").fetchone()
        return int((pages - free) * size)

    def _read(self, names: Sequence[str], since_s: int, until_s: int) -> dict[str, list[tuple[int, float]]]:
        reach_s = until_s - since_s
        level = next((at for at, each in enumerate(LEVELS) if each.keep_s >= reach_s), len(LEVELS) - 1)
        found: dict[str, list[tuple[int, float]]] = {}
        for name in names:
            if name not in self._ids:
                found[name] = []
                continue
            points: dict[int, float] = {}
            for finer in range(level, -1, -1):  # what is too new for this level is in a finer one
                start_s = max(points, default=since_s - 1) + 1
                rows = self._db.execute(
                    "select at_s, value from points where level = ? and series = ? and at_s between ? and ?",
                    (finer, self._ids[name], start_s, until_s),
                )
                points.update(rows)
            found[name] = sorted(points.items())
        return found

    def _note(self, name: str) -> str | None:
        row = self._db.execute("select value from notes where name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def _keep(self, name: str, value: str) -> None:
        self._db.execute("insert or replace into notes values (?, ?)", (name, value))

    def _notes(self, prefix: str) -> dict[str, str]:
        rows = self._db.execute(
            "select name, value from notes where substr(name, 1, ?) = ? order by name", (len(prefix), prefix)
        )
        return {str(name): str(value) for name, value in rows}

    def _drop(self, name: str) -> None:
        self._db.execute("delete from notes where name = ?", (name,))
