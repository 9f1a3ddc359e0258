"""Processes of this host: who listens at an address, and what they have used of the processor."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rocketq.remoting.address import split_addr

_PROC: Final = Path("/proc")
_LISTENS: Final = "0A"


def cpu_seconds(pids: tuple[int, ...]) -> float | None:
    """What these processes have used so far, all threads of each; None without any. OSError when one is not here."""
    return sum(map(_cpu_seconds_of, pids)) if pids else None


def _cpu_seconds_of(pid: int) -> float:
    total = 0
    for task in (_PROC / str(pid) / "task").iterdir():
        try:
            total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # the thread has ended
            continue
    return total / 1e9


def listeners(addrs: set[str]) -> tuple[int, ...]:
    """The processes that listen at these addresses; () unless every one is of this host and can be seen."""
    wanted: set[str] = set()
    for addr in addrs:
        host, port = split_addr(addr)
        found = set(_sockets_at(port)) if _is_here(host) else set()
        if not found:
            return ()
        wanted |= found
    return tuple(sorted(_holders(wanted)))


def _is_here(host: str) -> bool:
    """Whether an address belongs to this host: only those can be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    return True


def _sockets_at(port: int) -> Iterator[str]:
    """Inodes of the sockets that listen at a port. A line: number, local address, remote address, state, ..., inode."""
    for name in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / name).read_text().splitlines()[1:]
        except OSError:  # not this system's way
            continue
        for words in map(str.split, lines):
            if words[3] == _LISTENS and int(words[1].rsplit(":", 1)[1], 16) == port:
                yield words[9]


def _holders(inodes: set[str]) -> Iterator[int]:
    links = {f"socket:[{inode}]" for inode in inodes}
    for process in _PROC.iterdir():
        if process.name.isdigit():
            with contextlib.suppress(OSError):  # another user's, or gone
                if any(_target(held) in links for held in (process / "fd").iterdir()):
                    yield int(process.name)


def _target(held: Path) -> str:
    try:
        return os.readlink(held)
    except OSError:
        return ""
