"""A broker in a process of its own, started again by itself whenever it was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketq.broker.free_port import pick_port
from rocketq.testing.embedded import SMALL_FILES

REPOSITORY = Path(__file__).parents[2]


class KillableBroker:
    """`pid_file` holds the process to kill while it serves; whoever kills it removes the file. `kills` counts."""

    def __init__(self, name_servers: str, root: Path, pid_file: Path) -> None:
        self._order = {
            "root": str(root),
            "port": pick_port("127.0.0.1"),
            "settings": {**SMALL_FILES, "namesrvAddr": name_servers},
        }
        self._pid_file = pid_file
        self._stopping = False
        self._serving = threading.Event()
        self._pid = ""
        self.kills = 0

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversity.broker_forks"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        assert self._serving.wait(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping = True
        os.kill(int(self._pid), signal.SIGKILL)
        self._thread.join(60)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()

    def _watch(self) -> None:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        while not self._stopping:
            stdin.write(json.dumps(self._order) + "\n")
            stdin.flush()
            self._pid = stdout.readline().split()[1]
            if stdout.readline().strip() == "ready":
                draft = self._pid_file.with_suffix(".draft")
                draft.write_text(self._pid)
                draft.rename(self._pid_file)
                self._serving.set()
                stdout.readline()
            self.kills += 1
