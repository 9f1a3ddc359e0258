"""Transactions of Apache's clients with our broker, and directories with open transactions that change hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .apache import ApacheBroker, ApacheNameServer
from .cache import Unavailable
from .client_programs import HEAP_MB, Program, go
from .our_cluster import SETTINGS, OurCluster
from .release import obtain

pytestmark = pytest.mark.interop

TOPIC = "Bank"
CHECKS = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000", "transactionCheckMax": "1000"}
THEIR_CHECKS = {**CHECKS, "transactionCheckInterval": "4000", "transactionOpBatchInterval": "200"}
"""Brokers of 5.x note a decision some time later, and until then they ask again: then it is their message that comes
twice."""
CHECK_FLAGS = [part for key, value in CHECKS.items() for part in ("--set", f"{key}={value}")]

NameServers = Callable[[str], ApacheNameServer]


def java_transactions(version: str, *numbers: int) -> Program:
    """java/Transactions.java; what it does is counted from and up to these numbers."""
    try:
        release = obtain(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    program = Program(lambda home: [*release.java(heap_mb=HEAP_MB, home=home), "Transactions"])
    return Program(program.command, {"NUMBERS": " ".join(map(str, numbers))})


def go_transactions() -> Program:
    """go/transactions."""
    try:
        return go("transactions")
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[OurCluster]:
    cluster = OurCluster(tmp_path)
    yield cluster
    cluster.stop()


def start_all(cluster: OurCluster) -> None:
    data = str(cluster.folder / "data")
    cluster.start("up", "--data-dir", data, "--namesrv-port", "0", "--broker-port", "0", *CHECK_FLAGS)


@pytest.mark.parametrize("version", ["4.7.1", "4.9.7", "5.3.3"])
def test_apaches_producers_commit_roll_back_and_are_asked(version: str, ours: OurCluster, tmp_path: Path) -> None:
    """Goal: of every six, one is committed at once, three after a check or three, two are rolled back at once or then.
    Two producers of one group: the one asked need not be the one that sent."""
    program = java_transactions(version, 0, 30)
    start_all(ours)
    said = program.play("run", ours.nameserver_addr, TOPIC, tmp_path / "home")
    assert said == {"received": "20", "twice": "0", "unwanted": "0", "asked": "20", "missing": "0"}, ours.log()


def test_go_producers_commit_roll_back_and_are_asked(ours: OurCluster, tmp_path: Path) -> None:
    program = go_transactions()
    start_all(ours)
    said = program.play("run", ours.nameserver_addr, TOPIC, tmp_path / "home")
    assert said == {"received": "15", "twice": "0", "unwanted": "0", "asked": "7"}, ours.log()


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_open_transactions_change_hands(
    version: str, ours: OurCluster, nameserver: NameServers, broker_port: int, store_dir: Path, tmp_path: Path
) -> None:
    """Goal: halves left with us are asked about and committed by Apache, and the other way round, each once; all of
    them had been asked about before, so that there are copies. In the end with a kill of ours."""
    names = nameserver(version)
    counter = iter(range(10))

    def theirs() -> ApacheBroker:
        work = tmp_path / f"apache-{next(counter)}"
        return ApacheBroker(names, port=broker_port, store=store_dir, work=work, settings={**SETTINGS, **THEIR_CHECKS})

    def start_ours() -> None:
        store = str(store_dir)
        ours.start("broker", "-n", names.address, "--port", str(broker_port), "--data-dir", store, *CHECK_FLAGS)

    def leave(first: int) -> None:
        said = java_transactions(version, first, 5).play("leave", names.address, TOPIC, tmp_path / "home")
        assert said == {"left": "5", "asked": "true"}

    def settle(count: int) -> None:
        """So many messages are there in all then."""
        said = java_transactions(version, 0, count).play("settle", names.address, TOPIC, tmp_path / "home")
        assert said == {"received": str(count), "twice": "0"}

    start_ours()
    leave(0)
    ours.stop()
    with theirs():
        settle(5)
        leave(5)
    start_ours()
    settle(10)
    leave(10)
    ours.kill()
    start_ours()
    settle(15)
