"""Apache's operator tool against us: every command used daily or in operation, and the values it prints.

All tests of a version share one cluster. What they find there: topic Fresh with 116 messages, 35 of them with TagB;
group clients-shared, which has consumed 115 of them and is offline; group clients-live, which has consumed all and is
online, as is producer group clients-producer.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from . import client_programs, processes
from .apache import BROKER_NAME, CLUSTER_NAME
from .cache import Unavailable
from .mqadmin import MqAdmin, columns, matches
from .our_cluster import OurCluster
from .release import Release, obtain

pytestmark = pytest.mark.interop

WAIT_SECONDS_MAX = 60.0
LIVE, OFFLINE, PRODUCERS = "clients-live", "clients-shared", "clients-producer"


class LiveClient:
    """A producer and a consumer that stay (java/Clients.java)."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert self.said() == "ready"

    def said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().decode().strip()

    def deliveries(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.write(b"how many\n")
        self._process.stdin.flush()
        return int(self.said())


@contextmanager
def live_client(release: Release, nameserver_addr: str, work: Path) -> Iterator[LiveClient]:
    command = [*release.java(heap_mb=128, home=work), "Clients", "stay", nameserver_addr, "Fresh"]
    with (
        (work / "live.log").open("wb") as log,
        processes.start(command, log=log, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process,
    ):
        try:
            yield LiveClient(process)
        finally:
            process.kill()


@dataclass(frozen=True)
class Site:
    """The cluster, the tool and the live client of one version."""

    cluster: OurCluster
    tool: MqAdmin
    live: LiveClient

    @property
    def broker(self) -> str:
        return self.cluster.broker_addr

    @property
    def release(self) -> Release:
        return self.tool.release

    @property
    def version_text(self) -> str:
        return "V" + self.release.version.replace(".", "_")

    def topic_counts(self, topic: str) -> dict[int, int]:
        """Messages by queue."""
        rows = columns(self.tool("topicStatus", "-t", topic), starting=BROKER_NAME)
        return {int(row[1]): int(row[3]) - int(row[2]) for row in rows}

    def lag(self, group: str) -> int:
        return int(matches(r"Diff Total:\s*(-?\d+)", self.tool("consumerProgress", "-g", group))[1])

    def client_id(self) -> str:
        return matches(r"^(\S+@\S+)\s", self.tool("consumerConnection", "-g", LIVE))[1]


@pytest.fixture(scope="module", params=["4.9.7", "5.3.3"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    try:
        release, program = obtain(request.param), client_programs.java(request.param)
    except Unavailable as reason:
        pytest.skip(str(reason))
    work = tmp_path_factory.mktemp(f"mqadmin-{release.version}-")
    cluster = OurCluster(work)
    try:
        cluster.up()
        for mode in ("produce", "rebalance"):
            program.play(mode, cluster.nameserver_addr, "Fresh", work / "client-home")
        with (
            live_client(release, cluster.nameserver_addr, work) as live,
            MqAdmin(release, cluster.nameserver_addr, work) as tool,
        ):
            eventually(lambda: live.deliveries() == 116)
            yield Site(cluster, tool, live)
        cluster.stop()
    finally:
        cluster.kill()


def eventually(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.2)


def test_statistics(site: Site) -> None:
    """Goal: statsAll counts what came in and went out. First of all tests: minute sums slide."""
    shown: list[list[str]] = []

    def counted() -> bool:
        shown[:] = columns(site.tool("statsAll", "-t", "Fresh"), starting="Fresh")
        return [row[-2] for row in shown] == ["116", "116"]

    eventually(counted)
    by_group = {row[1]: row for row in shown}
    assert set(by_group) == {LIVE, OFFLINE}
    assert int(by_group[OFFLINE][2]) == 1
    assert int(by_group[OFFLINE][-1]) >= 115
    assert float(by_group[LIVE][3]) > 0


def test_cluster_list(site: Site) -> None:
    (row,) = columns(site.tool("clusterList"), starting=CLUSTER_NAME)
    assert row[1:4] == [BROKER_NAME, "0", site.broker]
    assert re.fullmatch(r"V\d_\d_\d", row[4])
    assert re.fullmatch(r"[\d.]+\(\d+,\d+ms(\|\d+,\d+ms)?\)", row[5]), row
    assert 0 <= float(row[-1 if site.release.is_4x else -2]) <= 1, row
    assert site.release.is_4x or row[-1] == "true"
    (totals,) = columns(site.tool("clusterList", "-m"), starting=CLUSTER_NAME)
    assert totals[2:5] == ["0", "0", "116"]
    assert int(totals[5]) >= 231


@pytest.mark.parametrize("by", ["-b", "-c"])
def test_broker_status(site: Site, by: str) -> None:
    text = site.tool("brokerStatus", by, site.broker if by == "-b" else CLUSTER_NAME)
    shown = {
        name: value.strip() for name, value in re.findall(r"^(?:\S+:\d+\s+)?(\w+)\s*:\s?(.*)$", text, re.MULTILINE)
    }
    assert int(shown["msgPutTotalTodayNow"]) >= 116
    assert int(shown["commitLogMaxOffset"]) > 116 * 100
    assert shown["commitLogMinOffset"] == "0"
    assert shown["dispatchBehindBytes"] == "0"
    assert abs(int(shown["bootTimestamp"]) / 1000 - time.time()) < 600
    assert abs(int(shown["earliestMessageTimeStamp"]) / 1000 - time.time()) < 600
    assert re.fullmatch(r"\[ 0 days, 0 hours, \d+ minutes, \d+ seconds \]", shown["runtime"])
    assert sum(map(int, re.findall(r"\]:(\d+)", shown["putMessageDistributeTime"]))) >= 116


@pytest.mark.parametrize(("by", "value"), [("-b", "71"), ("-c", "70")])
def test_broker_config(site: Site, by: str, value: str) -> None:
    target = site.broker if by == "-b" else CLUSTER_NAME
    change = ("-k", "fileReservedTime", "-v", value)
    assert "success" in site.tool("updateBrokerConfig", by, target, *change)
    config = site.tool("getBrokerConfig", by, target)
    matches(rf"^fileReservedTime\s+=\s+{value}$", config)
    matches(rf"^brokerName\s+=\s+{BROKER_NAME}$", config)
    matches(rf"^listenPort\s+=\s+{site.broker.rpartition(':')[2]}$", config)
    if by == "-c":
        matches(rf"^=+Master: {site.broker}=+$", config)


def test_sends_that_measure(site: Site, tmp_path: Path) -> None:
    """Goal: sendMsgStatus and clusterRT use the topic of the broker's name, checkMsgSendRT the queues in turn."""
    before = site.topic_counts(BROKER_NAME)
    status = site.tool("sendMsgStatus", "-b", BROKER_NAME, "-c", "3", "-s", "16")
    assert len(re.findall(rf"sendStatus=SEND_OK.*topic={BROKER_NAME}, brokerName={BROKER_NAME}", status)) == 3
    assert sum(site.topic_counts(BROKER_NAME).values()) - sum(before.values()) == 4  # one to warm up
    site.tool("updateTopic", "-b", site.broker, "-t", "Timed", "-r", "4", "-w", "4")
    timed = site.tool("checkMsgSendRT", "-t", "Timed", "-a", "4", "-s", "16")
    assert [row[1:3] for row in columns(timed, starting=BROKER_NAME)] == [[str(at), "true"] for at in range(4)]
    matches(r"Avg RT: [\d.]+", timed)
    assert site.topic_counts("Timed") == dict.fromkeys(range(4), 1)
    with MqAdmin(site.release, site.cluster.nameserver_addr, tmp_path) as other:
        row = rf"^{CLUSTER_NAME}\s+{BROKER_NAME}\s+[\d.]+\s+(\d+)\s+(\d+)"
        found = other.first_match(row, "clusterRT", "-c", CLUSTER_NAME, "-a", "5", "-s", "16", "-i", "1")
    assert found.groups() == ("5", "0")  # sent, failed


def test_upkeep(site: Site) -> None:
    before = site.topic_counts("Fresh")
    assert sum(before.values()) == 116
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        for target in (("-b", site.broker), ("-c", CLUSTER_NAME)):
            assert site.tool(command, *target).strip() == "success"
    assert site.topic_counts("Fresh") == before


def test_broker_consume_stats(site: Site) -> None:
    def offsets(*options: str) -> dict[str, tuple[int, int]]:
        """By group: sums of the broker's and the group's offsets."""
        sums: dict[str, tuple[int, int]] = {}
        for row in columns(site.tool("brokerConsumeStats", "-b", site.broker, *options), starting="Fresh"):
            known = sums.get(row[1], (0, 0))
            sums[row[1]] = known[0] + int(row[4]), known[1] + int(row[5])
        return sums

    eventually(lambda: offsets() == {LIVE: (116, 116), OFFLINE: (116, 115)})
    assert offsets("-l", "1000") == {}
    assert offsets("-o", "true") == {}
    matches(r"Diff Total: 1$", site.tool("brokerConsumeStats", "-b", site.broker))


def test_producers(site: Site) -> None:
    version = "407" if site.release.is_4x else "479"
    said = rf"clientId=(\S+),remoteIP=/127.0.0.1:(\d+), language=JAVA, version={version}, lastUpdateTimestamp=\d{{13}}"
    found = matches(rf"producer group \({PRODUCERS}\) instance : {said}", site.tool("producer", "-b", site.broker))
    (row,) = columns(site.tool("producerConnection", "-g", PRODUCERS, "-t", "Fresh"), starting="0001")
    assert row[1:] == [found[1], f"127.0.0.1:{found[2]}", "JAVA", site.version_text]
    assert "CODE: 1 " in site.tool("producerConnection", "-g", "nobody", "-t", "Fresh", fails=True)


def test_topics_are_made_changed_and_deleted(site: Site) -> None:
    tool = site.tool
    assert f"create topic to {site.broker} success" in tool("updateTopic", "-b", site.broker, "-t", "Made")
    (row,) = columns(tool("topicRoute", "-t", "Made", "-l"), starting=CLUSTER_NAME)
    assert row[1:] == [BROKER_NAME, f"{{0={site.broker}}}", "8", "8", "6"]
    assert "success" in tool("updateTopic", "-c", CLUSTER_NAME, "-t", "Made", "-r", "3", "-w", "2")
    assert route(tool, "Made").queues == [(3, 2, 6)]
    assert route(tool, "Made").brokers == f'"brokerAddrs":{{0:"{site.broker}"}},"brokerName":"{BROKER_NAME}"'
    assert site.topic_counts("Made") == dict.fromkeys(range(2 if site.release.is_4x else 3), 0)
    assert "from 6 to 4" in tool("updateTopicPerm", "-c", CLUSTER_NAME, "-t", "Made", "-p", "4")
    assert route(tool, "Made").queues == [(3, 2, 4)]
    assert "from 4 to 6" in tool("updateTopicPerm", "-b", site.broker, "-t", "Made", "-p", "6")
    assert route(tool, "Made").queues == [(3, 2, 6)]
    assert "Made" in tool("topicList").split()
    assert "success" in tool("deleteTopic", "-c", CLUSTER_NAME, "-t", "Made")
    assert "Made" not in tool("topicList").split()
    assert "CODE: 17 " in tool("topicRoute", "-t", "Made", fails=True)
    bad = tool("updateTopic", "-b", site.broker, "-t", "bad name", fails=True)
    assert "CODE: 1 " in bad or "illegal" in bad


def route(tool: MqAdmin, topic: str) -> SimpleNamespace:
    """The tool prints its own JSON, with numbers for keys."""
    text = re.sub(r"\s", "", tool("topicRoute", "-t", topic))
    queues = re.findall(r'"perm":(\d),"readQueueNums":(\d+),"topicSysFlag":0,"writeQueueNums":(\d+)', text)
    brokers = matches(r'"brokerDatas":\[\{(.*?),"cluster":"(\w+)"', text)
    return SimpleNamespace(
        queues=[(int(read), int(write), int(perm)) for perm, read, write in queues], brokers=brokers[1], text=text
    )


def test_topics_with_flags_and_attributes(site: Site, tmp_path: Path) -> None:
    site.tool("updateTopic", "-b", site.broker, "-t", "Units", "-u", "true", "-s", "true")
    assert '"topicSysFlag":3' in route(site.tool, "Units").text
    if site.release.is_4x:
        return

    def attributes() -> Any:
        assert "success" in site.tool("exportMetadata", "-b", site.broker, "-t", "-f", str(tmp_path))
        return json.loads((tmp_path / "topic.json").read_text())["topicConfigTable"]["Typed"]["attributes"]

    typed = ("updateTopic", "-b", site.broker, "-t", "Typed")
    site.tool(*typed, "-a", "+message.type=FIFO")
    assert attributes() == {"message.type": "FIFO"}
    site.tool(*typed, "-a", "-message.type")
    assert attributes() == {}


def test_topics_are_listed(site: Site) -> None:
    listed = site.tool("topicList").split()
    built_in = {"TBW102", "SELF_TEST_TOPIC", "BenchmarkTest", "OFFSET_MOVED_EVENT", CLUSTER_NAME, BROKER_NAME}
    assert built_in | {"Fresh", f"%RETRY%{LIVE}", f"%RETRY%{OFFLINE}"} <= set(listed)
    rows = [row[1:] for row in columns(site.tool("topicList", "-c"), starting=CLUSTER_NAME)]
    assert sorted(row for row in rows if row[0] == "Fresh") == [["Fresh", LIVE], ["Fresh", OFFLINE]]
    assert ["TBW102"] in rows
    assert site.tool("topicClusterList", "-t", "Fresh").split() == [CLUSTER_NAME]
    assert sum(site.topic_counts("Fresh").values()) == 116
    if not site.release.is_4x:
        rows = columns(site.tool("topicStatus", "-t", "Fresh", "-c", CLUSTER_NAME), starting=BROKER_NAME)
        assert sum(int(row[3]) for row in rows) == 116
    assert "CODE: 17 " in site.tool("topicStatus", "-t", "Nobody", fails=True)
    shared: dict[str, Any] = json.loads(site.tool("allocateMQ", "-t", "Fresh", "-i", "10.0.0.1,10.0.0.2"))["result"]
    assert [len(shared[addr]) for addr in ("10.0.0.1", "10.0.0.2")] == [2, 2]
    assert {queue["queueId"] for queues in shared.values() for queue in queues} == {0, 1, 2, 3}


def test_order_topics(site: Site) -> None:
    tool = site.tool
    made = ("updateTopic", "-c", CLUSTER_NAME, "-t", "Ordered", "-r", "3", "-w", "3", "-o", "true")
    assert f"orderConf=[{BROKER_NAME}:3]" in tool(*made)
    get = ("updateOrderConf", "-t", "Ordered", "-m", "get")
    assert f"orderConf=[{BROKER_NAME}:3]" in tool(*get)
    assert "success" in tool("updateOrderConf", "-t", "Ordered", "-m", "put", "-v", f"{BROKER_NAME}:2")
    assert f"orderConf=[{BROKER_NAME}:2]" in tool(*get)
    assert "orderTopicConf" not in route(tool, "Ordered").text
    assert "success" in tool("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    matches(r"^orderMessageEnable\s+=\s+true$", tool("getNamesrvConfig"))
    assert f'"orderTopicConf":"{BROKER_NAME}:2"' in route(tool, "Ordered").text
    assert "success" in tool("updateOrderConf", "-t", "Ordered", "-m", "delete")
    assert "CODE: 22 " in tool(*get, fails=True)


def test_key_values(site: Site) -> None:
    def kept() -> Any:
        return json.loads((site.cluster.folder / "data" / "namesrv" / "kvConfig.json").read_text())["configTable"]

    assert "success" in site.tool("updateKvConfig", "-s", "Space", "-k", "key", "-v", "value")
    assert kept()["Space"] == {"key": "value"}
    assert "success" in site.tool("deleteKvConfig", "-s", "Space", "-k", "key")
    assert kept()["Space"] == {}


def test_write_permission(site: Site) -> None:
    """Goal: wiped and given back in the NameServer, for all topics at once."""
    count = int(matches(r"OK, (\d+)", site.tool("wipeWritePerm", "-b", BROKER_NAME))[1])
    assert count >= 10
    assert route(site.tool, "Fresh").queues == [(4, 4, 4)]
    assert matches(r"OK, (\d+)", site.tool("addWritePerm", "-b", BROKER_NAME))[1] == str(count)
    assert route(site.tool, "Fresh").queues == [(4, 4, 6)]


def test_progress(site: Site) -> None:
    eventually(lambda: site.lag(LIVE) == 0)
    assert site.lag(OFFLINE) == 1
    shown = site.tool("consumerProgress", "-g", LIVE, "-s", "true")
    rows = columns(shown, starting="Fresh")
    assert sum(int(row[3]) for row in rows) == sum(int(row[4]) for row in rows) == 116
    assert {row[5] for row in rows} == {site.client_id().partition("@")[0]}
    listed = site.tool("consumerProgress")
    (row,) = columns(listed, starting=LIVE)
    assert (row[1:5], row[-1]) == (["1", site.version_text, "PUSH", "CLUSTERING"], "0")
    (row,) = columns(listed, starting=OFFLINE)
    assert (row[1:3], row[-1]) == (["0", "OFFLINE"], "1")


def test_connections(site: Site) -> None:
    for more in ((), ("-b", site.broker)):
        shown = site.tool("consumerConnection", "-g", LIVE, *more)
        matches(rf"^\S+@\S+\s+127\.0\.0\.1:\d+\s+JAVA\s+{site.version_text}$", shown)
        matches(r"^Fresh\s+TagA \|\| TagB$", shown)
        matches(rf"^%RETRY%{LIVE}\s+\*$", shown)
        matches(r"^ConsumeType: CONSUME_PASSIVELY$", shown)
        matches(r"^MessageModel: CLUSTERING$", shown)
        matches(r"^ConsumeFromWhere: CONSUME_FROM_FIRST_OFFSET$", shown)
    assert "CODE: 206 " in site.tool("consumerConnection", "-g", OFFLINE, fails=True)


def test_consumer_status(site: Site) -> None:
    """Goal: the client is asked over its own connection, and what it answers comes through."""
    client_id = site.client_id()
    for more in ((), ("-s",)):
        shown = site.tool("consumerStatus", "-g", LIVE, *more)
        path = matches(rf"^1\s+{re.escape(client_id)}\s+{site.version_text}\s+(\S+)$", shown)[1]
        assert "Rebalance OK" in shown
        written = (site.tool.home / path).read_text()
        offsets = matches(r"(?s)#Consumer Offset#(.*?)\n\n\n", written)[1]
        assert len(columns(offsets, starting="Fresh")) == 4
        assert ("TID:" in written) is bool(more)
    one = site.tool("consumerStatus", "-g", LIVE, "-i", client_id)
    assert "CONSUME_PASSIVELY" in one
    assert "CODE: 1 " in site.tool("consumerStatus", "-g", LIVE, "-i", "10.0.0.9@nobody", fails=True)


def test_groups_are_made_and_deleted(site: Site) -> None:
    tool = site.tool
    for target in (("-b", site.broker), ("-c", CLUSTER_NAME)):
        options = ("-g", "made-group", "-r", "5", "-q", "2", "-d", "true", "-w", "3")
        assert f"create subscription group to {site.broker} success" in tool("updateSubGroup", *target, *options)
        shown = tool("getConsumerConfig", "-g", "made-group")
        expected = {
            "consumeBroadcastEnable": "true",
            "consumeEnable": "true",
            "consumeFromMinEnable": "false",
            "retryMaxTimes": "5",
            "retryQueueNums": "2",
            "whichBrokerWhenConsumeSlowly": "3",
        }
        assert expected.items() <= dict(re.findall(r"^(\w+)\s+=\s+(\w+)$", shown, re.MULTILINE)).items()
        assert "success" in tool("deleteSubGroup", *target, "-g", "made-group", "-r", "true")
        assert "retryMaxTimes" not in tool("getConsumerConfig", "-g", "made-group")


def test_offsets_of_an_offline_group(site: Site) -> None:
    tool, total = site.tool, sum(site.topic_counts("Fresh").values())
    reset = tool("resetOffsetByTime", "-g", OFFLINE, "-t", "Fresh", "-s", "0")
    assert {row[-1] for row in columns(reset, starting=BROKER_NAME)} == {"0"}
    assert site.lag(OFFLINE) == total
    skipped = tool("skipAccumulatedMessage", "-g", OFFLINE, "-t", "Fresh")
    assert sum(int(row[-1]) for row in columns(skipped, starting=BROKER_NAME)) == total
    assert site.lag(OFFLINE) == 0
    tool("updateSubGroup", "-b", site.broker, "-g", "cloned")
    assert "success" in tool("cloneGroupOffset", "-s", OFFLINE, "-d", "cloned", "-t", "Fresh")
    rows = columns(tool("brokerConsumeStats", "-b", site.broker), starting="Fresh")
    assert sum(int(row[5]) for row in rows if row[1] == "cloned") == total
    tool("deleteSubGroup", "-b", site.broker, "-g", "cloned", "-r", "true")
    if not site.release.is_4x:
        one = ("-b", site.broker, "-q", "1", "-o", "2")
        tool("resetOffsetByTime", "-g", OFFLINE, "-t", "Fresh", "-s", "0", *one)
        rows = columns(tool("consumerProgress", "-g", OFFLINE), starting="Fresh")
        assert {row[2]: row[4] for row in rows}["1"] == "2"
        assert site.lag(OFFLINE) == site.topic_counts("Fresh")[1] - 2


def test_a_message_is_found(site: Site) -> None:
    """Goal: by key, by unique key, by place and by id; who has consumed it; consumed once more; sent once more."""
    tool, topic = site.tool, ([] if site.release.is_4x else ["-t", "Fresh"])
    found = matches(r"^(\w{32,56})\s+(\d)\s+(\d+)", tool("queryMsgByKey", "-t", "Fresh", "-k", "key-sync-3"))
    unique, queue_id, offset = found.groups()
    by_place = tool("queryMsgByOffset", "-t", "Fresh", "-b", BROKER_NAME, "-i", queue_id, "-o", offset)
    message_id = matches(r"^OffsetID:\s*(\w{32})$", by_place)[1]
    eventually(lambda: site.lag(LIVE) == 0)  # for the track
    by_unique = ("queryMsgByUniqueKey", "-t", "Fresh", "-i", unique)
    for shown in (by_place, tool(*by_unique), tool(*by_unique, "-a"), tool("queryMsgById", "-i", message_id, *topic)):
        matches(r"^Topic:\s+Fresh$", shown)
        matches(r"^Tags:\s+\[TagB\]$", shown)
        matches(r"^Keys:\s+\[key-sync-3\]$", shown)
        matches(rf"^Queue ID:\s+{queue_id}$", shown)
        matches(rf"^Queue Offset:\s+{offset}$", shown)
        matches(rf"^Store Host:\s+{site.broker}$", shown)
        matches(rf"UNIQ_KEY={unique}\b", shown)
        matches(rf"consumerGroup={OFFLINE}, trackType=NOT_ONLINE", shown)
    matches(rf"consumerGroup={LIVE}, trackType=CONSUMED\b", tool("queryMsgById", "-i", message_id, *topic))
    before = site.live.deliveries()
    directly = ("-g", LIVE, "-d", site.client_id())
    assert "consumeResult=CR_SUCCESS" in tool("queryMsgById", "-i", message_id, *topic, *directly)
    assert "consumeResult=CR_SUCCESS" in tool(*by_unique, *directly)
    assert site.live.deliveries() == before + 2
    total = sum(site.topic_counts("Fresh").values())
    assert "SEND_OK" in tool("queryMsgById", "-i", message_id, *topic, "-s", "true")
    assert sum(site.topic_counts("Fresh").values()) == total + 1
    eventually(lambda: site.live.deliveries() == before + 3)


def test_messages_are_printed_and_sent(site: Site) -> None:
    tool = site.tool
    counts = site.topic_counts("Fresh")
    tagged = tool("printMsg", "-t", "Fresh", "-s", "TagB", "-d", "true")
    bodies = set(re.findall(r"BODY: ((?:sync|async|oneway)-\d+)$", tagged, re.MULTILINE))
    assert bodies == {
        f"{kind}-{at}" for kind, count in (("sync", 40), ("async", 20), ("oneway", 10)) for at in range(1, count, 2)
    }
    now_ms = int(time.time() * 1000)
    earlier, later = str(now_ms - 3_600_000), str(now_ms + 3_600_000)
    by_time = tool("printMsg", "-t", "Fresh", "-b", earlier, "-e", later, "-d", "false")
    assert by_time.count("MSGID: ") == sum(counts.values())
    assert tool("printMsg", "-t", "Fresh", "-b", later, "-e", later).count("MSGID: ") == 0
    queue = tool("printMsgByQueue", "-t", "Fresh", "-a", BROKER_NAME, "-i", "0", "-p", "true", "-d", "true")
    assert queue.count("MSGID: ") == counts[0]
    place = ("-b", BROKER_NAME, "-i", "2")
    sent = tool("sendMessage", "-t", "Fresh", "-p", "by hand", "-k", "hand-key", "-c", "TagZ", *place)
    (row,) = columns(sent, starting=BROKER_NAME)
    assert row[1:3] == ["2", "SEND_OK"]
    found = matches(r"^(\w{32,56})\s+(\d)\s+(\d+)", tool("queryMsgByKey", "-t", "Fresh", "-k", "hand-key"))
    assert found.groups() == (row[3], "2", str(counts[2]))
    read = tool("consumeMessage", "-t", "Fresh", *place, "-o", str(counts[2]), "-c", "1")
    assert re.findall(r"BODY: (.*)$", read, re.MULTILINE) == ["by hand"]
    entry = ("queryCq", "-t", "Fresh", "-q", "2", "-i", str(counts[2]), "-c", "3", "-b", site.broker, "-g", LIVE)
    shown = tool(*entry)
    matches(rf"max: {counts[2] + 1}, min: 0", shown)
    assert re.findall(r"tagsCode=(-?\d+),.*eval=(\w+)", shown) == [("2598944", "false")]  # TagZ is not subscribed to


def test_a_message_is_traced(site: Site) -> None:
    assert "SEND_OK" in site.tool("sendMessage", "-t", "Fresh", "-p", "traced", "-k", "traced-key", "-m", "true")
    unique = matches(r"^(\w{32,56})\s", site.tool("queryMsgByKey", "-t", "Fresh", "-k", "traced-key"))[1]

    def is_traced() -> bool:
        key = ("queryMsgByKey", "-t", "RMQ_SYS_TRACE_TOPIC", "-k", unique)
        return re.search(r"^\w{32,56}\s", site.tool(*key), re.MULTILINE) is not None

    eventually(is_traced)
    (row,) = columns(site.tool("queryMsgTraceById", "-i", unique), starting="Pub")
    assert row[-1] == "success"


def test_offsets_of_an_online_group(site: Site) -> None:
    """Goal: a reset reaches the members, which consume everything again."""
    before, total = site.live.deliveries(), sum(site.topic_counts("Fresh").values())
    reset = site.tool("resetOffsetByTime", "-g", LIVE, "-t", "Fresh", "-s", "0")
    assert [row[-1] for row in columns(reset, starting=BROKER_NAME)] == ["0"] * 4
    eventually(lambda: site.live.deliveries() >= before + 116)
    eventually(lambda: site.lag(LIVE) == 0)
    skipped = site.tool("skipAccumulatedMessage", "-g", LIVE, "-t", "Fresh")
    assert sum(int(row[-1]) for row in columns(skipped, starting=BROKER_NAME)) == total
    unknown = site.tool("resetOffsetByTime", "-g", LIVE, "-t", "Nobody", "-s", "0", fails=True)
    assert "CODE: 17 " in unknown


def test_exports(site: Site, tmp_path: Path) -> None:
    def exported(command: str, name: str, *options: str) -> Any:
        assert "success" in site.tool(command, "-c", CLUSTER_NAME, *options, "-f", str(tmp_path))
        return json.loads((tmp_path / name).read_text())

    for options, name in (((), "metadata.json"), (("-t",), "topic.json"), (("-g",), "subscriptionGroup.json")):
        metadata = exported("exportMetadata", name, *options)
        if options != ("-g",):
            fresh = metadata["topicConfigTable"]["Fresh"]
            assert (fresh["readQueueNums"], fresh["writeQueueNums"], fresh["perm"]) == (4, 4, 6)
            assert "TBW102" not in metadata["topicConfigTable"]
        if options != ("-t",):
            assert metadata["subscriptionGroupTable"][LIVE]["retryMaxTimes"] == 16
            assert "TOOLS_CONSUMER" not in metadata["subscriptionGroupTable"]
    configs = exported("exportConfigs", "configs.json")
    assert configs["clusterScale"] == {"namesrvSize": 1, "slaveBrokerSize": 0, "masterBrokerSize": 1}
    config = configs["brokerConfigs"][BROKER_NAME]
    assert (config["brokerId"], config["brokerRole"], config["maxMessageSize"]) == ("0", "ASYNC_MASTER", str(1 << 20))
    assert len(config) == 16
    report = exported("exportMetrics", "metrics.json")["evaluateReport"][BROKER_NAME]
    assert report["runtimeVersion"]["clientInfo"] == [f"JAVA%{site.version_text}"]
    assert report["runtimeQuota"]["topicSize"] >= 1
    assert report["runtimeQuota"]["groupSize"] >= 2
    assert float(report["runtimeQuota"]["messageAverageSize"]) > 100


def test_access_control_is_off(site: Site) -> None:
    """Goal: commands about it end at once and say why."""
    if not site.release.is_4x:
        pytest.skip("the tools of 5.x have other commands for it")
    for command, *options in (
        ("updateAclConfig", "-a", "alice", "-s", "secret123"),
        ("deleteAclConfig", "-a", "alice"),
        ("deleteAccessConfig", "-a", "alice"),
        ("clusterAclConfigVersion",),
        ("updateGlobalWhiteAddr", "-g", "10.0.0.1"),
        ("getAclConfig",),
        ("getAccessConfigSubCommand",),
    ):
        shown = site.tool(command, "-b", site.broker, *options, fails=True)
        matches(r"CODE: 1 .*access control is not enabled", shown)
