"""Fixtures for tests that need a broker; installed with the package, so that naming one is enough.

def test_orders(rocketq_cluster):
    send(rocketq_cluster.name_server_addr, ...)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketq.testing.embedded import EmbeddedCluster


@pytest.fixture(scope="session")
def rocketq_cluster() -> Iterator[EmbeddedCluster]:
    """A NameServer and a broker that all tests of the session share: give each test its own topics and groups."""
    from rocketq.testing.embedded import EmbeddedCluster  # noqa: PLC0415 - who uses no fixture pays for no import

    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def make_rocketq_cluster() -> Iterator[Callable[..., EmbeddedCluster]]:
    """Clusters of a test's own, with the arguments of EmbeddedCluster; stopped when the test is over."""
    from rocketq.testing.embedded import EmbeddedCluster  # noqa: PLC0415 - who uses no fixture pays for no import

    with ExitStack() as stack:

        def make(**given: Any) -> EmbeddedCluster:
            return stack.enter_context(EmbeddedCluster(**given))

        yield make
