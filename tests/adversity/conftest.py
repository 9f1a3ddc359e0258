"""Healthy stores, made once and copied for each test."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .stores import Healthy, make_healthy

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(scope="session")
def fast_dir() -> Iterator[Path]:
    """Memory where there is some: these tests write and drop many small directories."""
    made = Path(tempfile.mkdtemp(prefix="rocketq-adversity-", dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def work_dir(fast_dir: Path) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(dir=fast_dir))
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture(scope="session")
def _originals(fast_dir: Path) -> Callable[[str], Healthy]:
    made: dict[str, Healthy] = {}

    def original(name: str) -> Healthy:
        if name not in made:
            into = fast_dir / f"original-{len(made)}"
            into.mkdir()
            made[name] = make_healthy(name, into)
        return made[name]

    return original


@pytest.fixture
def healthy_of(_originals: Callable[[str], Healthy], work_dir: Path) -> Callable[[str], Healthy]:
    """A fresh copy of a healthy store by its variant's name."""
    return lambda name: _originals(name).copy(work_dir)
