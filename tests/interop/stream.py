"""A process that stores messages and prints a line for each acknowledged one, until it or its broker is killed."""

from __future__ import annotations

import json
import subprocess
import time

from .messages import Acknowledged

SECONDS_MAX = 60.0


class Stream:
    """What the process has had acknowledged so far."""

    def __init__(self, process: subprocess.Popen[bytes], path: str) -> None:
        self._process = process
        self._path = path

    def acknowledged(self) -> list[Acknowledged]:
        """Whole lines only: the client may be writing one right now."""
        with open(self._path, "rb") as file:
            whole = file.read().rpartition(b"\n")[0]
        return [Acknowledged.from_line(json.loads(line)) for line in whole.splitlines()]

    def await_count(self, count: int) -> None:
        deadline = time.monotonic() + SECONDS_MAX
        while len(self.acknowledged()) < count:
            assert self._process.poll() is None, f"the streaming process ended with {self._process.returncode}"
            assert time.monotonic() < deadline, f"fewer than {count} messages were acknowledged"
            time.sleep(0.05)

    def await_end(self) -> None:
        """The client ends by itself once the broker is gone; then every acknowledgement has been written."""
        self._process.wait(SECONDS_MAX)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
