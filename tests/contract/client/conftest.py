"""One cluster of two brokers for all tests here that do not need one of their own; names no other test uses."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketq.testing.embedded import EmbeddedCluster

_NUMBERS = itertools.count()


@pytest.fixture(scope="package")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2) as running:
        yield running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; the topic does not exist yet."""
    return f"C{next(_NUMBERS)}-{re.sub('[^a-zA-Z0-9]', '-', request.node.name)}"[:80]


@pytest.fixture
def group(topic: str) -> str:
    return f"G-{topic}"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Broadcasting consumers keep their offsets under the home directory."""
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path
