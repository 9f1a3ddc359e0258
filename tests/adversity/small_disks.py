"""File systems of a few MiB for the data of replicas, and filling them."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

LOOKS_OFTEN = {"cleanResourceInterval": "500", "cleanFileForciblyEnable": "false"}
"""Settings with which a broker notices a full disk within half a second, and keeps its files."""


@contextlib.contextmanager
def small_disks(folder: Path, count: int = 3, mib: int = 24) -> Iterator[None]:
    """A file system of its own for each replica's data."""
    mounted: list[Path] = []
    if shutil.which("mount") is None:
        pytest.skip("mounting needs `mount`")
    try:
        for number in range(count):
            where = folder / f"data{number}"
            where.mkdir()
            command = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(where)]
            if subprocess.run(command, capture_output=True, check=False).returncode != 0:
                pytest.skip("mounting is not allowed here")
            mounted.append(where)
        yield
    finally:
        for where in mounted:
            subprocess.run(["umount", "-l", str(where)], check=True)


def small_disks_work() -> bool:
    """Whether this user may mount file systems."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.suppress(pytest.skip.Exception),
        small_disks(Path(folder), count=1),
    ):
        return True
    return False


def fill(folder: Path) -> Path:
    """To the last block."""
    ballast = folder / "ballast"
    with open(ballast, "wb") as file:
        try:
            while True:
                file.write(bytes(1 << 20))
                file.flush()
        except OSError:
            return ballast
