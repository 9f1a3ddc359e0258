"""CPU seconds of processes and all they have started, as Linux counts them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_QUIET_S: Final = 0.1


def settled_cpu_seconds(roots: Iterable[int]) -> float:
    """As `cpu_seconds`, once nobody is coming or going: who ends while the list is read is in no line of it."""
    known = list(roots)
    seconds, members = _read(known)
    while True:
        time.sleep(_QUIET_S)
        before = members
        seconds, members = _read(known)
        if members == before:
            return seconds


def cpu_seconds(roots: Iterable[int]) -> float:
    """Of these processes and everything below them; who has ended counts through who waited for it."""
    return _read(roots)[0]


def _read(roots: Iterable[int]) -> tuple[float, set[int]]:
    times, parents = _table()
    members, waiting = set[int](), list(roots)
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    while waiting:
        pid = waiting.pop()
        if pid in times and pid not in members:
            members.add(pid)
            waiting += children.get(pid, [])
    return sum(times[pid] for pid in members) / _TICKS_PER_S, members


def _table() -> tuple[dict[int, int], dict[int, int]]:
    """Ticks, with those of children that were waited for, and parents."""
    times, parents = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(entry.parent.name)
        parents[pid] = int(fields[1])
        times[pid] = sum(map(int, fields[11:15]))
    return times, parents
