"""Processes that do not outlive the test run, whatever ends it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

PR_SET_PDEATHSIG = 1
_prctl: Callable[..., int] = ctypes.CDLL(None).prctl


def _end_with_parent() -> None:
    """The kernel ends the child when the thread that started it ends: so start servers from the main thread."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def start(
    command: list[str],
    *,
    log: IO[bytes],
    stdin: int = subprocess.DEVNULL,
    stdout: int | IO[bytes] | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Errors go into the log, and what it prints too unless told otherwise."""
    options: dict[str, Any] = {"cwd": cwd, "env": dict(os.environ) if env is None else env}
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=log if stdout is None else stdout,
        stderr=log,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 one call of the C library
        **options,
    )
