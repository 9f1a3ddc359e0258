"""One folder for all temporary files of a run: it goes with the run, however that ends."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "rocketq-bench-run-"


@contextmanager
def run_folder() -> Iterator[Path]:
    """Everything that `tempfile` makes meanwhile lies in it. What runs left behind that were killed is removed too.

    A run that is told to end comes to its `finally` parts, as with Ctrl-C: peers are stopped there."""
    before = tempfile.tempdir
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    remove_left(Path(tempfile.gettempdir()))
    root = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    tempfile.tempdir = str(root)
    try:
        yield root
    finally:
        tempfile.tempdir = before
        shutil.rmtree(root, ignore_errors=True)


def remove_left(folder: Path) -> None:
    """Folders of runs whose process is gone."""
    for path in folder.glob(f"{PREFIX}*"):
        pid = path.name.removeprefix(PREFIX).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists():
            shutil.rmtree(path, ignore_errors=True)
