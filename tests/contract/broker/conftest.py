"""One cluster for all tests here that do not need one of their own; names no other test uses."""

from __future__ import annotations

import itertools
import re

import pytest

from rocketq.testing.pytest_plugin import make_rocketq_cluster, rocketq_cluster

__all__ = ["make_rocketq_cluster", "rocketq_cluster"]

_NUMBERS = itertools.count()


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; the topic does not exist yet."""
    return f"T{next(_NUMBERS)}-{re.sub('[^a-zA-Z0-9]', '-', request.node.name)}"[:100]


@pytest.fixture
def group(topic: str) -> str:
    return f"G-{topic}"
