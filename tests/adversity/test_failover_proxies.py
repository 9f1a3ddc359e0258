"""Partitions without networks of their own, so without root: each way of a broker leads through a cutting proxy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from rocketq.testing.etcd import PACKAGE, find_etcd
from rocketq.testing.fault_proxy import FaultProxy
from tests.sim.kernel_forms import COMPILED_IS_TESTED_TOO

from .failover_scene import Scene, play, says
from .replica_processes import ReplicaProcesses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"),
    pytest.mark.skipif(COMPILED_IS_TESTED_TOO, reason="what decides has no kernel in it: run with the compiled one"),
]

TOLD_IP = "127.0.0.2"
"""Where slaves look for their master: a proxy, at the port that the broker has at 127.0.0.1."""


class Ways:
    """Of each broker: to etcd, and of its slaves to it."""

    def __init__(self, cluster: ReplicaProcesses, stack: ExitStack) -> None:
        member = cluster.etcd.members[0]
        self.to_etcd: list[FaultProxy] = []
        self.to_stream: list[FaultProxy] = []
        for broker, port in zip(cluster.brokers, cluster.ports, strict=True):
            etcd = stack.enter_context(FaultProxy(f"{member.host}:{member.client_port}"))
            stream = stack.enter_context(FaultProxy(f"127.0.0.1:{port + 1}", f"{TOLD_IP}:{port + 1}"))
            broker.arguments += ("--set", f"haControlStore=etcd://{etcd.addr}", "--set", f"brokerIP2={TOLD_IP}")
            self.to_etcd.append(etcd)
            self.to_stream.append(stream)


@contextmanager
def proxied(folder: Path) -> Iterator[tuple[ReplicaProcesses, Ways]]:
    with ExitStack() as stack:
        cluster = ReplicaProcesses(folder)
        yield cluster, Ways(cluster, stack)


def test_a_master_that_etcd_does_not_hear_is_replaced(tmp_path: Path) -> None:
    """Goal: connections stay open and silent; the old master answers nothing more and follows when it hears again."""

    async def fault(scene: Scene) -> None:
        way = ways.to_etcd[scene.number_of(scene.master)]
        way.freeze()
        await scene.new_master()
        await scene.goes_on()
        await says(scene.master, "has no valid lease")
        way.restore()
        await says(scene.master, "is no longer master")

    with proxied(tmp_path) as (cluster, ways):
        play(tmp_path, fault, cluster)


@pytest.mark.parametrize("how", ["frozen", "refused"])
def test_a_master_whose_slaves_do_not_reach_it_is_replaced(tmp_path: Path, how: str) -> None:
    """Goal: with a silent or a refused stream, a slave that reaches the other one and etcd leads."""

    async def fault(scene: Scene) -> None:
        way = ways.to_stream[scene.number_of(scene.master)]
        if how == "frozen":
            way.freeze()
        else:
            way.refuse()
            way.cut()
        await scene.new_master()
        await scene.goes_on()
        way.restore()

    with proxied(tmp_path) as (cluster, ways):
        play(tmp_path, fault, cluster)
