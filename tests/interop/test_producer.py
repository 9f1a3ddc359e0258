"""The suite of producers against real Apache brokers: the same cases as against ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.contract.client.producing import CASES, Needs, Target, run_case

from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .routes import await_route

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]
SETTINGS = {
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 5_000),
    "transactionTimeOut": "1000",
    "transactionCheckInterval": "1000",
    "traceTopicEnable": "true",
}
TIMERS = {"timerWheelEnable": "true", "recallMessageEnable": "true"}
HAS = {
    "4.9.7": frozenset({Needs.DELAY, Needs.TRANSACTIONS, Needs.REPLIES}),
    "5.3.3": frozenset({Needs.DELAY, Needs.TRANSACTIONS, Needs.REPLIES, Needs.TIMER, Needs.RECALLS}),
}


@pytest.fixture(scope="module")
def target(
    nameserver: Callable[[str], ApacheNameServer], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Target]]:
    """A running cluster of a version; one of each serves the module."""
    running: dict[str, Target] = {}
    with ExitStack() as stack:

        def get(version: str) -> Target:
            if version not in running:
                folder = tmp_path_factory.mktemp(f"producer-{version}-")
                broker = ApacheBroker(
                    nameserver(version),
                    port=free_broker_port(),
                    store=folder / "store",
                    work=folder / "broker",
                    settings=SETTINGS | ({} if version.startswith("4.") else TIMERS),
                )
                stack.enter_context(broker)
                await_route(broker.nameserver.address)
                running[version] = Target(broker.nameserver.address, HAS[version])
            return running[version]

        yield get


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_broker(target: Callable[[str], Target], version: str, name: str) -> None:
    """Goal: what is asked of any broker, of one that is not ours."""
    run_case(name, target(version))
