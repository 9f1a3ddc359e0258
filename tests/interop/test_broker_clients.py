"""The clients of others with our NameServer and our broker; our broker with Apache's NameServer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketq.client import Admin

from . import client_programs
from .apache import ApacheNameServer, free_broker_port
from .cache import Unavailable
from .client_programs import Program
from .mqadmin import MqAdmin
from .our_cluster import OurCluster
from .release import obtain

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]
REBALANCED = {"shared": "2 2", "later": "20"}
JAVA = {
    "produce": {"sent": "95"},
    "consume": {
        "all": "95",
        "tagged": "35",
        "ordered": "95 1",
        "disorder": "0",
        "broadcast": "95 95",
        "lite": "95",
    },
}
GO = {
    "produce": {"sent": "52"},
    "consume": {"all": "52", "tagged": "10", "ordered": "52 1", "disorder": "0", "broadcast": "52 52"},
}
CPP = {
    "produce": {"sent": "60"},
    "consume": {"all": "60", "tagged": "10", "ordered": "60 1", "disorder": "0", "broadcast": "4 4"},
}
NODE = {
    "produce": {"sent": "21"},
    "consume": {"all": "22", "tagged": "11", "disorder": "0", "broadcast": "22 22"},
}
FILTERED = {"sql-0": "5", "sql-1": "8", "sql-2": "3", "sql-3": "5", "tag": "5"}
NODE_TOPICS = ("Fresh", "%RETRY%node-all", "%RETRY%node-tagged", "%RETRY%node-shared")

Said = dict[str, dict[str, str]]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OurCluster]:
    made = OurCluster(tmp_path)
    try:
        yield made
        made.stop()
    finally:
        made.kill()


def obtained(make: Callable[[], Program]) -> Program:
    try:
        return make()
    except Unavailable as reason:
        pytest.skip(str(reason))


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(functools.partial(client_programs.java, "4.7.1"), JAVA, id="java-4.7.1"),
        pytest.param(functools.partial(client_programs.java, "4.9.7"), JAVA, id="java-4.9.7"),
        pytest.param(functools.partial(client_programs.java, "5.3.3"), JAVA, id="java-5.3.3"),
        pytest.param(client_programs.go, GO, id="go-2.1.2"),
        pytest.param(client_programs.cpp, CPP, id="cpp"),
        pytest.param(client_programs.node, NODE, id="node"),
    ],
)
def test_a_client_produces_and_consumes(
    make: Callable[[], Program], expected: Said, cluster: OurCluster, tmp_path: Path
) -> None:
    """Goal: every way of sending the client has, to a topic that is new; consuming concurrently and in order,
    clustering and broadcasting, by tag; members that come and go; a restart, gentle or not, after which groups go
    on."""
    program = obtained(make)
    cluster.up()
    if expected is NODE:  # it makes no topics, and takes a missing route for a failure
        make_topics(cluster, NODE_TOPICS)

    def play(mode: str) -> dict[str, str]:
        return program.play(mode, cluster.nameserver_addr, "Fresh", tmp_path / "client-home")

    assert play("produce") == expected["produce"]
    route = cluster.route("Fresh")
    assert route is not None
    assert [(queue.read_queue_count, queue.write_queue_count, queue.perm) for queue in route.queues] == [(4, 4, 6)]
    assert play("consume") == expected["consume"]
    rebalanced = play("rebalance")
    assert rebalanced.pop("quick").lower() == "true"
    assert rebalanced == REBALANCED
    cluster.stop()
    cluster.up()
    assert play("resume") == {"again": "0"}
    cluster.kill()
    cluster.up()
    assert play("resume") == {"again": "0"}


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        pytest.param(functools.partial(client_programs.java, "4.9.7"), {**FILTERED, "bad": "23"}, id="java-4.9.7"),
        pytest.param(functools.partial(client_programs.java, "5.3.3"), {**FILTERED, "bad": "23"}, id="java-5.3.3"),
        pytest.param(client_programs.go, FILTERED, id="go-2.1.2"),
    ],
)
def test_a_client_filters_by_sql_and_by_tag(
    make: Callable[[], Program], expected: dict[str, str], cluster: OurCluster, tmp_path: Path
) -> None:
    """Goal: conditions of clients of others are true for the same messages; the Java ones ask first, and a bad one is
    refused before anything is consumed."""
    program = obtained(make)
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    cluster.start("up", "--data-dir", str(tmp_path / "data"), *ports, "--set", "enablePropertyFilter=true")
    assert program.play("filter", cluster.nameserver_addr, "Filtered", tmp_path / "client-home") == expected


def make_topics(cluster: OurCluster, topics: tuple[str, ...]) -> None:
    with Admin(cluster.nameserver_addr) as admin:
        for topic in topics:
            assert admin.topics.create(topic, queues=4).routed


@pytest.mark.parametrize("version", VERSIONS)
def test_our_broker_registers_with_apaches_name_server(version: str, cluster: OurCluster, tmp_path: Path) -> None:
    """Goal: routes of ours told by Apache lead its clients and tools to us, and a goodbye is understood."""
    program = obtained(functools.partial(client_programs.java, version))
    work = tmp_path / "nameserver"
    work.mkdir()
    with ApacheNameServer(obtain(version), work=work) as names:
        cluster.addresses["namesrv"] = names.address
        data = str(tmp_path / "data")
        cluster.start("broker", "-n", names.address, "--port", str(free_broker_port()), "--data-dir", data)
        with MqAdmin(obtain(version), names.address, tmp_path) as tool:
            assert cluster.broker_addr in tool("clusterList")
            home = tmp_path / "client-home"
            assert program.play("produce", names.address, "Fresh", home) == JAVA["produce"]
            assert program.play("consume", names.address, "Fresh", home) == JAVA["consume"]
            assert program.play("rebalance", names.address, "Fresh", home)["later"] == "20"
            cluster.stop()
            assert "broker-a" not in tool("clusterList")
