"""Real brokers, a real etcd: masters are killed, stopped, cut off and switched under load; every answer is checked
afterwards.

ROCKETQ_FAILOVERS=n does so many in a row; `make chaos` does 200.
"""

from __future__ import annotations

import asyncio
import os
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.model import NewMessage
from rocketq.store import Store
from rocketq.testing.etcd import PACKAGE, find_etcd
from tests.sim.kernel_forms import COMPILED_IS_TESTED_TOO

from .failover_history import Answers, check_nothing_lost, store_config
from .failover_load import Watcher, grow, sending
from .failover_turns import Row, run_row
from .namespaces import why_not
from .replica_processes import ReplicaProcesses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"),
]

TURNS = int(os.environ.get("ROCKETQ_FAILOVERS", "2" if COMPILED_IS_TESTED_TOO else "10"))
MIXED = ("switch", "kill", "pause", "stop")
CUTS = ("cut-slaves", "cut-etcd", "cut-all", "cut-slaves-one-way", "cut-servers", "cut-etcd-one-way", "kill")
GAP_P50_S, GAP_MAX_S = 4, 8
"""Longest times without writes after the end of a master's process, with `haLeaseMode=available`."""


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(Row(turns=TURNS, kinds=("kill", "restart"), flush="ASYNC_FLUSH"), id="async-kills"),
        pytest.param(Row(turns=TURNS, kinds=MIXED, mode="strict"), id="sync-strict-mixed"),
        pytest.param(Row(turns=min(TURNS, 5), kinds=CUTS), id="sync-cuts"),
    ],
)
def test_no_answered_message_is_lost_by_failovers(
    tmp_path: Path, row: Row, record_property: Callable[[str, object], None]
) -> None:
    """Goal: after every failover all that was answered SEND_OK is where the answer said, once; replicas are equal."""
    if row.apart and (reason := why_not()):
        pytest.skip(reason)
    figures = run_row(tmp_path, row)
    record_property("figures", figures.line(row.name))
    assert figures.acked
    assert figures.lost == 0
    assert len(figures.all_gaps_s) == row.turns
    if set(row.kinds) <= {"kill", "restart"}:
        assert statistics.median(figures.all_gaps_s) < GAP_P50_S, figures.gaps_s
        assert max(figures.all_gaps_s) < GAP_MAX_S, figures.gaps_s


def test_a_store_that_has_nothing_in_common_is_put_aside_when_that_is_wanted(tmp_path: Path) -> None:
    """Goal: haAutoResync: what was a broker of its own before keeps its files beside and copies the master's."""
    foreign = tmp_path / "data2"
    with Store.open(store_config(foreign), services=False) as store:
        for number in range(10):
            store.append(NewMessage(topic="Old", queue_id=0, body=b"old %d" % number))
    cluster = ReplicaProcesses(tmp_path, haAutoResync="true")
    last = cluster.brokers.pop()
    answers = Answers()

    async def work() -> None:
        cluster.brokers.append(last)
        async with Watcher(cluster) as watcher:
            await watcher.master(members=2)
            async with sending(cluster.name_server, answers, senders=1):
                await grow(answers, cluster, 50)
                await asyncio.to_thread(last.start)
                await watcher.master(members=3)
                await grow(answers, cluster)

    with cluster:
        asyncio.run(work())
        cluster.stop_brokers()
    check_nothing_lost(tmp_path, answers)
    (aside,) = foreign.glob("put-aside-*")
    assert (aside / "commitlog").is_dir()
