"""Things to kill: a broker in a process of its own, a driver, executors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from rocketq.testing.embedded import SMALL_FILES
from tests.interop.processes import start

START_S = 60
EXECUTOR = b"CoarseGrainedExecutorBackend"


class BrokerProcess:
    """A broker that can be killed and comes back at its port, on its directory."""

    def __init__(self, name_servers: str, folder: Path) -> None:
        self._name_servers, self._folder = name_servers, folder
        self._ready = folder / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._port = "0"
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        self._ready.unlink(missing_ok=True)
        changes = [part for key, value in SMALL_FILES.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "rocketq", "broker", "--namesrv", self._name_servers, "--port", self._port]
        command += ["--data-dir", str(self._folder / "store"), "--set", "brokerName=killed", *changes]
        with (self._folder / "broker.log").open("ab") as log:
            self._process = start([*command, "--ready-file", str(self._ready)], log=log)
        deadline = time.monotonic() + START_S
        while not self._ready.exists():
            assert self._process.poll() is None, (self._folder / "broker.log").read_text()[-2000:]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        addresses = json.loads(self._ready.read_text())["addresses"]
        self._port = next(iter(addresses.values())).rpartition(":")[2]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def executors_below(pid: int) -> list[int]:
    """Executors that this process or its descendants have started, the oldest first."""
    return sorted(each for each in _descendants(pid) if EXECUTOR in _command(each))


def kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def kill_all_below(pid: int) -> None:
    """A driver's JVM and all that it started, then itself."""
    for each in [*_descendants(pid), pid]:
        kill(each)


def _descendants(pid: int) -> Iterator[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            waiting.append(child)
            yield child


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
