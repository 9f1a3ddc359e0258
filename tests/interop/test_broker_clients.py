"""Apache's clients and tools with our NameServer and our broker; our broker with Apache's NameServer."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from .apache import SMALL_FILES, ApacheNameServer, free_broker_port
from .release import ApacheUnavailable, Release, obtain

pytestmark = pytest.mark.interop

START_SECONDS_MAX = 20
RUN_SECONDS_MAX = 120
TOOL_SECONDS_MAX = 60
GO_BUILD_SECONDS_MAX = 300
GO_SOURCES = Path(__file__).parent / "go"
NPM_SECONDS_MAX = 120
NODE_SOURCES = Path(__file__).parent / "node"
VERSIONS = ["4.9.7", "5.3.3"]
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeConsumeQueue": str(20 * 5_000),
    "maxMessageSize": str(1 << 20),
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "0.99",
    "diskSpaceCleanForciblyRatio": "0.98",
    "brokerName": "broker-a",
    "traceTopicEnable": "true",
}


class Ours:
    """`rocketq` in a process, and Apache's client and tools talking to it."""

    def __init__(self, release: Release, folder: Path) -> None:
        self.release = release
        self.folder = folder
        self._ready = folder / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None
        self.addresses: dict[str, str] = {}
        self._ports: list[str] = ["--namesrv-port", "0", "--broker-port", "0"]

    def up(self) -> None:
        self.start("up", "--data-dir", str(self.folder / "data"), *self._ports)
        ports = [self.addresses[name].rpartition(":")[2] for name in ("namesrv", "broker-a")]
        self._ports = ["--namesrv-port", ports[0], "--broker-port", ports[1]]  # the same after a restart

    def start(self, *arguments: str) -> None:
        self._ready.unlink(missing_ok=True)
        changes = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "rocketq", *arguments, *changes, "--ready-file", str(self._ready)]
        with (self.folder / "ours.log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._ready.exists():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.addresses |= json.loads(self._ready.read_text())["addresses"]

    def log(self) -> str:
        return (self.folder / "ours.log").read_text()[-4000:]

    def stop(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            assert self._process.wait(15) == 0, self.log()
            self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def clients(self, mode: str, topic: str) -> dict[str, str]:
        """What a program with Apache's client says about a scenario (java/Clients.java)."""
        home = self.folder / "client-home"
        home.mkdir(exist_ok=True)
        command = [*self.release.java(heap_mb=256, home=home), "Clients", mode, self.addresses["namesrv"], topic]
        ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX)
        assert ran.returncode == 0, ran.stdout + ran.stderr[-4000:] + self.log()
        return dict(line.split(" ", 1) for line in ran.stdout.splitlines())

    def mqadmin(self, *arguments: str) -> str:
        """What Apache's tool prints for a command."""
        home = self.folder / "tools-home"
        if not home.exists():
            (home / "conf").mkdir(parents=True, exist_ok=True)
            (home / "conf" / "logback_tools.xml").write_text("<configuration/>")
        command = [*self.release.java(heap_mb=128, home=home), "org.apache.rocketmq.tools.command.MQAdminStartup"]
        ran = subprocess.run(
            [*command, *arguments, "-n", self.addresses["namesrv"]],
            capture_output=True,
            text=True,
            check=False,
            timeout=TOOL_SECONDS_MAX,
            env={"ROCKETMQ_HOME": str(home)},
            cwd=home,
        )
        said = ran.stdout + ran.stderr
        assert "Exception" not in said, said
        return ran.stdout


Begin = Callable[[str], Ours]


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[Begin]:
    started: list[Ours] = []

    def begin(version: str) -> Ours:
        try:
            started.append(Ours(obtain(version), tmp_path))
        except ApacheUnavailable as reason:
            pytest.skip(str(reason))
        return started[-1]

    yield begin
    for one in started:
        one.stop()


@pytest.mark.parametrize("version", ["4.7.1", *VERSIONS])
def test_apaches_clients_produce_and_consume(version: str, ours: Begin) -> None:
    """Goal: every way of sending, consuming at once and in order, clustering and broadcast, tags, a new topic; members
    that come and go; and a restart, gentle or not, after which groups go on where they were."""
    cluster = ours(version)
    cluster.up()
    assert cluster.clients("produce", "Fresh") == {"sent": "85", "queues": "4"}
    assert cluster.clients("consume", "Fresh") == {
        "all": "85",
        "tagged": "35",
        "ordered": "85",
        "disorder": "0",
        "broadcast": "85 85",
        "lite": "85",
    }
    assert cluster.clients("rebalance", "Fresh") == {"shared": "2 2", "quick": "true", "later": "20"}
    cluster.stop()
    cluster.up()
    assert cluster.clients("resume", "Fresh") == {"again": "0"}
    cluster.kill()
    cluster.up()
    assert cluster.clients("resume", "Fresh")["again"] == "0"


@pytest.mark.parametrize("version", VERSIONS)
def test_our_broker_registers_with_apaches_name_server(version: str, ours: Begin, tmp_path: Path) -> None:
    cluster = ours(version)
    work = tmp_path / "nameserver"
    work.mkdir()
    with ApacheNameServer(cluster.release, work=work) as names:
        cluster.addresses["namesrv"] = names.address
        data = str(tmp_path / "data")
        cluster.start("broker", "-n", names.address, "--port", str(free_broker_port()), "--data-dir", data)
        assert cluster.addresses["broker-a"] in cluster.mqadmin("clusterList")
        assert cluster.clients("produce", "Fresh") == {"sent": "85", "queues": "4"}
        assert cluster.clients("rebalance", "Fresh")["later"] == "20"
        cluster.stop()
        assert "broker-a" not in cluster.mqadmin("clusterList")


def matches(pattern: str, text: str) -> re.Match[str]:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, f"{pattern} is not in\n{text}"
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_tools_work(version: str, ours: Begin) -> None:
    """Goal: the commands operators use every day print what is so. A JVM each, mostly waiting, so a few at a time."""
    cluster = ours(version)
    cluster.up()
    addr = cluster.addresses["broker-a"]
    cluster.clients("produce", "Fresh")
    cluster.clients("rebalance", "Fresh")  # leaves a group with offsets
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda check: check(cluster, addr), (cluster_checks, topic_checks, group_checks, message_checks)))
        list(pool.map(lambda check: check(cluster, addr), (upkeep_checks, sending_checks, export_checks)))


def cluster_checks(cluster: Ours, addr: str) -> None:
    matches(rf"DefaultCluster\s+broker-a\s+0\s+{addr}", cluster.mqadmin("clusterList"))
    matches(r"msgPutTotalTodayNow\s*:?\s*1[01]\d", cluster.mqadmin("brokerStatus", "-b", addr))
    assert "success" in cluster.mqadmin("updateBrokerConfig", "-b", addr, "-k", "traceOn", "-v", "false")
    config = cluster.mqadmin("getBrokerConfig", "-b", addr)
    matches(r"brokerName\s*=\s*broker-a", config)
    matches(r"traceOn\s*=\s*false", config)


def topic_checks(cluster: Ours, addr: str) -> None:
    assert "success" in cluster.mqadmin("updateTopic", "-b", addr, "-t", "Made", "-r", "3", "-w", "3")
    matches(r'"readQueueNums":\s*3', cluster.mqadmin("topicRoute", "-t", "Made"))
    listed = cluster.mqadmin("topicList").split()
    assert {"Fresh", "Made", "TBW102"} <= set(listed)
    rows = re.findall(r"^broker-a\s+\d+\s+0\s+(\d+)", cluster.mqadmin("topicStatus", "-t", "Fresh"), re.MULTILINE)
    assert sum(map(int, rows)) == 105
    assert "success" in cluster.mqadmin("updateTopicPerm", "-b", addr, "-t", "Made", "-p", "4")
    assert "success" in cluster.mqadmin("deleteTopic", "-c", "DefaultCluster", "-t", "Made")
    assert "Made" not in cluster.mqadmin("topicList").split()
    assert "DefaultCluster" in cluster.mqadmin("topicClusterList", "-t", "Fresh")


def group_checks(cluster: Ours, addr: str) -> None:
    matches(r"Diff Total:\s*0", cluster.mqadmin("consumerProgress", "-g", "clients-shared"))
    assert "clients-shared" in cluster.mqadmin("consumerProgress")
    assert "clients-shared" in cluster.mqadmin("brokerConsumeStats", "-b", addr)
    assert "success" in cluster.mqadmin("updateSubGroup", "-b", addr, "-g", "made-group", "-r", "5")
    matches(r"retryMaxTimes\s*=\s*5", cluster.mqadmin("getConsumerConfig", "-g", "made-group"))
    assert "success" in cluster.mqadmin("deleteSubGroup", "-b", addr, "-g", "made-group")
    assert "broker-a" in cluster.mqadmin("resetOffsetByTime", "-g", "clients-shared", "-t", "Fresh", "-s", "0")
    matches(r"Diff Total:\s*105", cluster.mqadmin("consumerProgress", "-g", "clients-shared"))


def message_checks(cluster: Ours, addr: str) -> None:
    found = matches(r"^(\w{32,56})\s+(\d)\s+(\d+)", cluster.mqadmin("queryMsgByKey", "-t", "Fresh", "-k", "key-sync-3"))
    unique, queue_id, offset = found.groups()
    matches(rf"Queue Offset:\s*{offset}", cluster.mqadmin("queryMsgByUniqueKey", "-t", "Fresh", "-i", unique))
    shown = cluster.mqadmin("queryMsgByOffset", "-t", "Fresh", "-b", "broker-a", "-i", queue_id, "-o", offset)
    message_id = matches(r"OffsetID:\s*(\w{32})", shown)[1]
    topic = [] if cluster.release.is_4x else ["-t", "Fresh"]
    assert "key-sync-3" in cluster.mqadmin("queryMsgById", "-i", message_id, *topic)
    assert cluster.mqadmin("printMsg", "-t", "Fresh", "-s", "TagB").count("MSGID") == 35
    entries = cluster.mqadmin("queryCq", "-t", "Fresh", "-q", "0", "-i", "0", "-c", "3", "-b", addr)
    assert entries.count("physicOffset") == 3


def upkeep_checks(cluster: Ours, addr: str) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in cluster.mqadmin(command, "-b", addr)


def sending_checks(cluster: Ours, addr: str) -> None:
    assert cluster.mqadmin("sendMsgStatus", "-b", "broker-a", "-c", "3", "-s", "16").count("SEND_OK") == 3
    assert cluster.mqadmin("checkMsgSendRT", "-t", "Fresh", "-a", "3", "-s", "16").count("true") == 3
    assert "SEND_OK" in cluster.mqadmin("sendMessage", "-t", "Fresh", "-p", "by hand")
    assert "Fresh" in cluster.mqadmin("statsAll", "-t", "Fresh")


def export_checks(cluster: Ours, addr: str) -> None:
    for command in ("exportMetadata", "exportConfigs", "exportMetrics"):
        folder = str(cluster.folder / "export")
        assert "success" in cluster.mqadmin(command, "-c", "DefaultCluster", "-f", folder)
    cluster.mqadmin("producer", "-b", addr)


@pytest.fixture(scope="session")
def go_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in go/, built."""
    if shutil.which("go") is None:
        pytest.skip("no go was found")
    target = tmp_path_factory.mktemp("go") / "clients"
    command = ["go", "build", "-o", str(target), "."]
    try:
        built = subprocess.run(
            command, cwd=GO_SOURCES, capture_output=True, text=True, check=False, timeout=GO_BUILD_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"the Go client was not fetched and built within {GO_BUILD_SECONDS_MAX} s")
    if "dial tcp" in built.stderr or "proxyconnect" in built.stderr:
        pytest.skip(f"the Go client cannot be fetched: {built.stderr[:200]}")
    assert built.returncode == 0, built.stderr
    return target


def test_the_go_client_produces_and_consumes(go_clients: Path, ours: Begin, tmp_path: Path) -> None:
    """Goal: every way of sending, tags, in order, broadcast, a member that leaves; with the Go client v2.1.2. It keeps
    the offsets of broadcast groups in its home folder, so every run has one of its own."""
    cluster = ours("4.9.7")
    cluster.up()
    ran = subprocess.run(
        [str(go_clients), cluster.addresses["namesrv"], "GoFresh"],
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
        env={**os.environ, "ROCKETMQ_GO_LOG_LEVEL": "error", "HOME": str(tmp_path)},
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:] + cluster.log()
    said = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    assert said == {"sent": "42", "all": "42", "tagged": "10", "ordered": "42", "broadcast": "42", "later": "8"}


@pytest.fixture(scope="session")
def node_clients(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program in node/, with its package beside it."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("no node and npm were found")
    folder = tmp_path_factory.mktemp("node")
    for source in NODE_SOURCES.iterdir():
        shutil.copy(source, folder)
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=NPM_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        pytest.skip(f"ali-ons was not fetched within {NPM_SECONDS_MAX} s")
    if ran.returncode != 0:
        pytest.skip(f"ali-ons cannot be fetched: {(ran.stdout + ran.stderr)[:200]}")
    return folder / "clients.js"


def test_the_node_client_produces_and_consumes(node_clients: Path, ours: Begin) -> None:
    """Goal: sends, tags, long polling; with ali-ons 3.12, which makes no topics."""
    cluster = ours("4.9.7")
    cluster.up()
    addr = cluster.addresses["broker-a"]
    for topic in ("NodeFresh", "%RETRY%node-all", "%RETRY%node-tagged"):
        assert "success" in cluster.mqadmin("updateTopic", "-b", addr, "-t", topic, "-r", "4", "-w", "4")
    command = ["node", str(node_clients), cluster.addresses["namesrv"], "NodeFresh"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX)
    assert ran.returncode == 0, ran.stdout + ran.stderr[-2000:] + cluster.log()
    assert dict(line.split(" ", 1) for line in ran.stdout.splitlines()) == {"sent": "20", "all": "21", "tagged": "11"}
