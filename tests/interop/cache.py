"""The folder for what the tests fetch and build once, and the one reason not to run: something cannot be had here."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


class Unavailable(Exception):
    """What is missing on this machine: the reason of a skip, not a failure."""


def cache_root() -> Path:
    chosen = os.environ.get("ROCKETQ_APACHE_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "rocketq" / "apache"


def found(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise Unavailable(f"no {name} was found")
    return path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Two test runs must not fill the same cache folder at the same time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def digest_of(sources: Iterable[Path]) -> str:
    """Names what was made from these files, so that an edit is never missed."""
    return hashlib.sha256(b"".join(source.read_bytes() for source in sorted(sources))).hexdigest()[:16]


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """The folder, filled by `make` unless an earlier run did; a half-made one is never taken for whole."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.parent / f"{folder.name}.lock"):
        if not folder.is_dir():
            partial = folder.with_name(f"{folder.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            make(partial)
            partial.rename(folder)
    return folder


def fetch(what: str, command: list[str], *, cwd: Path, seconds_max: int) -> None:
    """Run a package manager; where it fails, what it fetches cannot be had here."""
    try:
        ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=seconds_max)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what} was not fetched within {seconds_max} s") from None
    if ran.returncode != 0:
        raise Unavailable(f"{what} cannot be fetched: {first_error(ran.stdout + ran.stderr)}")


def first_error(output: str) -> str:
    lines = [line for line in output.splitlines() if "error" in line.lower()] or output.splitlines() or ["no output"]
    return lines[0][:300]
