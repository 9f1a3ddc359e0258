"""Apache's brokers, clients and tools with our NameServer between them."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from rocketq.protocol.command import Command
from rocketq.remoting import ConnectionPool

from . import driver, expect, processes
from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .cache import Unavailable
from .mqadmin import MqAdmin, ToolFailure, matches
from .release import Release, obtain

pytestmark = pytest.mark.interop

START_SECONDS_MAX = 20
REGISTER_SECONDS_MAX = 40


class OurNameServer:
    """As much of a NameServer as brokers and clients need to know."""

    def __init__(self, release: Release, address: str) -> None:
        self.release = release
        self.address = address

    def await_topic(self, topic: str) -> None:
        """A 5.x broker that started before it noticed the NameServer registers only 10 s later."""
        deadline = time.monotonic() + REGISTER_SECONDS_MAX
        while asyncio.run(self._route_code(topic)) != 0:
            assert time.monotonic() < deadline, f"no route of {topic}"
            time.sleep(0.2)

    async def _route_code(self, topic: str) -> int:
        pool = ConnectionPool()
        try:
            return (await pool.invoke(self.address, Command(code=105, ext_fields={"topic": topic}))).code
        finally:
            await pool.close()


@contextmanager
def our_nameserver(version: str, folder: Path) -> Iterator[OurNameServer]:
    try:
        release = obtain(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    conf, ready = folder / "namesrv.conf", folder / "ready.json"
    conf.write_text(f"kvConfigPath={folder / 'kvConfig.json'}\n")
    command = [sys.executable, "-m", "rocketq", "namesrv", "--port", "0", "-c", str(conf), "--ready-file", str(ready)]
    with (folder / "namesrv.log").open("wb") as log:
        process = processes.start(command, log=log)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield OurNameServer(release, json.loads(ready.read_text())["addresses"]["namesrv"])
    finally:
        process.terminate()
        assert process.wait(10) == 0


def make_broker(nameserver: OurNameServer, folder: Path, **settings: str) -> ApacheBroker:
    return ApacheBroker(
        cast(ApacheNameServer, nameserver),
        port=free_broker_port(),
        store=folder / "store",
        work=folder / "broker",
        settings=settings,
    )


@pytest.mark.parametrize("version", ["4.7.1", "4.9.7", "5.3.3"])
def test_an_apache_broker_registers_and_its_clients_find_it(version: str, tmp_path: Path) -> None:
    """Goal: what a real client sends through routes of ours is read back through them, new topics included."""
    with our_nameserver(version, tmp_path) as nameserver, make_broker(nameserver, tmp_path) as broker:
        sent = driver.produce(broker, prefix="Routed", seed=1)
        expect.everything_matches(driver.verify(broker, sent), sent)


def await_figures(tool: MqAdmin, broker: ApacheBroker) -> None:
    """A 4.x broker has none in its first seconds, and says that as a failure."""
    deadline = time.monotonic() + REGISTER_SECONDS_MAX
    while True:
        try:
            tool("brokerStatus", "-b", broker.address)
        except ToolFailure:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            return


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_apaches_tools_read_what_we_answer(version: str, tmp_path: Path) -> None:
    """Goal: compressed registrations, cluster and topic lists, permissions, config, and a broker that leaves."""
    with (
        our_nameserver(version, tmp_path) as nameserver,
        MqAdmin(nameserver.release, nameserver.address, tmp_path) as tool,
        make_broker(nameserver, tmp_path, compressedRegister="true") as broker,
    ):
        nameserver.await_topic("TBW102")
        await_figures(tool, broker)
        matches(rf"DefaultCluster\s+broker-a\s+0\s+{broker.address}", tool("clusterList"))
        assert "TBW102" in tool("topicList").split()
        tool("updateTopic", "-c", "DefaultCluster", "-t", "Made", "-r", "3", "-w", "3")
        route = tool("topicRoute", "-t", "Made")
        assert broker.address in route
        matches(r'"readQueueNums":\s*3', route)
        assert "OK" in tool("wipeWritePerm", "-b", "broker-a")
        matches(r'"perm":\s*4', tool("topicRoute", "-t", "Made"))
        assert "OK" in tool("addWritePerm", "-b", "broker-a")
        matches(r'"perm":\s*6', tool("topicRoute", "-t", "Made"))
        broker.stop()
        assert "broker-a" not in tool("clusterList")
