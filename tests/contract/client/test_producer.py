"""The suite of producers against our broker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocketq.testing.embedded import EmbeddedCluster

from .producing import CASES, Needs, Target, run_case

SETTINGS = {"transactionTimeOut": "500", "transactionCheckInterval": "500", "traceTopicEnable": "true"}


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    with EmbeddedCluster(settings=SETTINGS) as cluster:
        yield Target(cluster.name_server_addr, frozenset(Needs))


@pytest.mark.parametrize("name", CASES)
def test_our_broker(name: str, target: Target) -> None:
    """Goal: what is asked of any broker, of ours."""
    run_case(name, target)
