"""Clients of others that produce and consume through failovers of our replicated broker."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.testing.etcd import PACKAGE, find_etcd
from tests.adversity.failover_history import TOPIC, Answers, check_nothing_lost
from tests.adversity.failover_load import HEAL_S, Watcher, all_consumed, grow
from tests.adversity.failover_turns import FAULTS
from tests.adversity.replica_processes import ReplicaProcesses

from . import processes
from .cache import Unavailable
from .client_programs import HEAP_MB, go
from .release import obtain

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"),
]

FAILOVERS = ("kill", "pause", "stop")
Command = Callable[[Path], list[str]]


def java(version: str, home: Path) -> list[str]:
    return [*obtain(version).java(heap_mb=HEAP_MB, home=home), "Failover"]


def go_client(home: Path) -> list[str]:
    return go("failover").command(home)


class Client:
    """The program of a client; what it says becomes part of the history."""

    def __init__(self, command: list[str], name_server: str, home: Path, answers: Answers) -> None:
        self._answers = answers
        self.quiet = threading.Event()
        environment = {**os.environ, "HOME": str(home), "ROCKETMQ_GO_LOG_LEVEL": "error"}
        with (home / "client.log").open("wb") as log:
            self._process = processes.start(
                [*command, name_server, TOPIC],
                log=log,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=home,
                env=environment,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._take(line.decode(errors="replace").split(maxsplit=3))

    def _take(self, words: list[str]) -> None:
        match words:
            case ["sent", queue_id, offset, body]:
                self._answers.ok(body.strip().encode(), (int(queue_id), int(offset)))
            case ["got", queue_id, offset, body]:
                self._answers.consumed((int(queue_id), int(offset)), body.strip().encode())
            case ["failed", body, *why]:
                self._answers.failed(body.encode(), " ".join(why))
            case ["quiet"]:
                self.quiet.set()

    def stop_sending(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        assert self.quiet.wait(HEAL_S), "the senders do not stop"

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(10)
        assert self._process.stdin is not None
        self._process.stdin.close()


async def live_through(cluster: ReplicaProcesses, client: Client, answers: Answers) -> list[float]:
    """How long the client got no answer in each failover."""
    gaps_s = []
    async with Watcher(cluster) as watcher:
        for kind in FAILOVERS:
            epoch, process = await watcher.master()
            await grow(answers, cluster, 50)
            began_s = time.monotonic()
            await FAULTS[kind](process, watcher, epoch)
            await grow(answers, cluster, 50)
            gaps_s.append(answers.longest_gap_s(began_s))
        await watcher.master()
    await asyncio.to_thread(client.stop_sending)
    await all_consumed(answers, cluster)
    return gaps_s


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(functools.partial(java, "4.9.7"), id="java-4.9.7"),
        pytest.param(functools.partial(java, "5.3.3"), id="java-5.3.3"),
        pytest.param(go_client, id="go-2.1.2"),
    ],
)
def test_a_client_lives_through_three_failovers(
    command: Command, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Goal: what was answered SEND_OK to a producer of others is where it was told, and its consumer got it; the
    master was killed, stood still, and was stopped."""
    home = tmp_path / "client"
    home.mkdir()
    try:
        words = command(home)
    except Unavailable as reason:
        pytest.skip(str(reason))
    answers = Answers()
    with ReplicaProcesses(tmp_path, flush="SYNC_FLUSH", etcd_members=3) as cluster:
        client = Client(words, cluster.name_server, home, answers)
        try:
            gaps_s = asyncio.run(live_through(cluster, client, answers))
        finally:
            client.end()
        cluster.stop_brokers()
    found = check_nothing_lost(tmp_path, answers)
    record_property(
        "figures",
        f"{len(answers.acked)} acknowledged, 0 lost, {len(answers.unknown)} unknown, {found.stored_twice_count} stored "
        f"twice, {answers.again_count} delivered again, without answers for {[round(gap, 1) for gap in gaps_s]} s",
    )
