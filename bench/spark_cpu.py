"""CPU seconds of processes and all they have started, as Linux counts them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def cpu_seconds(roots: Iterable[int]) -> float:
    """Of these processes and everything below them; who has ended counts through who waited for it."""
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
    return sum(times[pid] for pid in members) / _TICKS_PER_S


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
