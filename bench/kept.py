"""Results that are kept row by row, so that a run that is ended early has what it measured until then.

A row replaces the one of an earlier run; the others stay. Each says its commit, and bars of rows that were measured at
another commit, or on another machine, say so wherever they are shown.
"""

from __future__ import annotations

import os
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from bench.bars import Bar, commit_name, save, saved
from bench.plot import plot_bars


def state_of_sources() -> str:
    """The commit, with a plus sign when what is measured has changes that are not in it."""
    asked = ["git", "status", "--porcelain", "--untracked-files=no", "--", "src", "bench/load"]
    changed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return commit_name() + ("+" if changed else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRow:
    """What one row came to, and of what."""

    commit: str
    machine: str
    measured: str
    rounds: int
    figures: dict[str, Any]
    bars: list[Bar]
    notes: list[str]

    @classmethod
    def read(cls, value: dict[str, Any]) -> KeptRow:
        bars = [Bar(**{key: each[key] for key in ("name", "measured", "wanted", "at_most")}) for each in value["bars"]]
        return cls(**{**value, "bars": bars})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "bars": [{**asdict(bar), "held": bar.held} for bar in self.bars]}


class Kept:
    """The file of one benchmark, with a picture beside it; both are written anew with every row."""

    def __init__(self, name: str, order: list[str]) -> None:
        self._name = name
        self._order = order
        self._commit = state_of_sources()
        self._machine = machine_name()
        found = saved(name).get("rows", {})
        self.rows = {row: KeptRow.read(value) for row, value in found.items() if row in order and "commit" in value}

    def put(self, row: str, figures: dict[str, Any], bars: list[Bar], *, rounds: int, notes: list[str]) -> Path:
        measured = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        self.rows[row] = KeptRow(
            commit=self._commit,
            machine=self._machine,
            measured=measured,
            rounds=rounds,
            figures={name: asdict(each) for name, each in figures.items()},
            bars=bars,
            notes=list(dict.fromkeys(notes)),
        )
        self.rows = {name: self.rows[name] for name in self._order if name in self.rows}
        path = save(self._name, {"rows": {name: kept.to_json() for name, kept in self.rows.items()}})
        plot_bars(self.bars(), path.with_suffix(".png"))
        return path

    def bars(self, only: list[str] | None = None) -> list[Bar]:
        """Of all rows; those that were not measured here and now are marked."""
        return [
            bar if self._is_now(kept) else replace(bar, name=f"{bar.name} [{kept.commit}]")
            for name, kept in self.rows.items()
            for bar in kept.bars
            if only is None or name in only
        ]

    def _is_now(self, kept: KeptRow) -> bool:
        return (kept.commit, kept.machine) == (self._commit, self._machine)


def machine_name() -> str:
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    return f"{os.cpu_count()} x {model.partition(':')[2].strip() or 'unknown'}"


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
