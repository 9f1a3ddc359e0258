"""Apache's brokers, clients and tools with our NameServer between them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from rocketq.protocol.command import Command
from rocketq.remoting import ConnectionPool

from . import driver, expect
from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .release import ApacheUnavailable, Release, obtain

pytestmark = pytest.mark.interop

START_SECONDS_MAX = 20
REGISTER_SECONDS_MAX = 40
TOOL_SECONDS_MAX = 60


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

    def mqadmin(self, home: Path, *arguments: str) -> str:
        """What Apache's tool prints for a command."""
        command = [*self.release.java(heap_mb=128, home=home), "org.apache.rocketmq.tools.command.MQAdminStartup"]
        ran = subprocess.run(
            [*command, *arguments, "-n", self.address],
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS_MAX,
            env={"ROCKETMQ_HOME": str(home)},
        )
        assert "Exception" not in ran.stdout + ran.stderr, ran.stdout + ran.stderr
        return ran.stdout


@contextmanager
def our_nameserver(version: str, folder: Path) -> Iterator[OurNameServer]:
    try:
        release = obtain(version)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    conf, ready = folder / "namesrv.conf", folder / "ready.json"
    conf.write_text(f"kvConfigPath={folder / 'kvConfig.json'}\n")
    command = [sys.executable, "-m", "rocketq", "namesrv", "--port", "0", "-c", str(conf), "--ready-file", str(ready)]
    with (folder / "namesrv.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
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


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_apaches_tools_read_what_we_answer(version: str, tmp_path: Path) -> None:
    """Goal: compressed registrations, cluster and topic lists, permissions, config, and a broker that leaves."""
    home = tmp_path / "tools-home"
    (home / "conf").mkdir(parents=True)
    with our_nameserver(version, tmp_path) as nameserver:
        with make_broker(nameserver, tmp_path, compressedRegister="true") as broker:
            (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
            nameserver.await_topic("TBW102")
            assert re.search(
                rf"DefaultCluster\s+broker-a\s+0\s+{broker.address}", nameserver.mqadmin(home, "clusterList")
            )
            assert "TBW102" in nameserver.mqadmin(home, "topicList")
            nameserver.mqadmin(home, "updateTopic", "-c", "DefaultCluster", "-t", "Made", "-r", "3", "-w", "3")
            route = nameserver.mqadmin(home, "topicRoute", "-t", "Made")
            assert broker.address in route
            assert re.search(r'"readQueueNums":\s*3', route)
            assert "OK" in nameserver.mqadmin(home, "wipeWritePerm", "-b", "broker-a")
            assert re.search(r'"perm":\s*4', nameserver.mqadmin(home, "topicRoute", "-t", "Made"))
            assert "OK" in nameserver.mqadmin(home, "addWritePerm", "-b", "broker-a")
            nameserver.mqadmin(home, "updateKvConfig", "-s", "N", "-k", "k", "-v", "v")
            assert json.loads((tmp_path / "kvConfig.json").read_text()) == {"configTable": {"N": {"k": "v"}}}
            nameserver.mqadmin(home, "updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
            assert re.search(r"orderMessageEnable\s*=\s*true", nameserver.mqadmin(home, "getNamesrvConfig"))
        assert "broker-a" not in nameserver.mqadmin(home, "clusterList")
