"""NameServers that come and go, restarts, clients that vanish: what a cluster must live through."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.broker import Broker, BrokerConfig
from rocketq.broker.admin import registration
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection
from rocketq.store import StoreConfig
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import (
    Peer,
    connected,
    eventually,
    heartbeat,
    hold,
    letters,
    make_topic,
    over_loopback,
    pull,
    records,
    route,
    send,
    send_fields,
)

MakeCluster = Callable[..., EmbeddedCluster]
SMALL = {
    "segment_bytes": 16 << 20,
    "queue_file_bytes": 20_000,
    "index_slots": 100,
    "index_units": 400,
    "disk_refuse_ratio": 0.99,
    "disk_force_clean_ratio": 0.98,
}


def name_server(folder: Path, port: int = 0) -> NameServer:
    return NameServer(NameServerConfig(port=port, kv_path=folder / "kv.json", config_path=folder / "ns.properties"))


def broker(folder: Path, *name_servers: str, **given: object) -> Broker:
    config = BrokerConfig(name="broker-0", port=0, name_servers=";".join(name_servers), **given)  # type: ignore[arg-type]
    return Broker(config, StoreConfig(root=folder / "store", **SMALL))  # type: ignore[arg-type]


async def is_routed(addr: str, topic: str = "TBW102") -> bool:
    async with connected(addr) as (names,):
        return await route(names, topic) is not None


@over_loopback
async def test_a_name_server_that_comes_later_hears_of_the_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "RETRY_MS", 50)
    first, second = name_server(tmp_path / "1"), name_server(tmp_path / "2")
    await first.start()
    await second.start()
    late = second.addr
    await second.stop()
    one = broker(tmp_path, first.addr, late)
    await one.start()
    try:
        assert await is_routed(first.addr)  # right after the start
        second = name_server(tmp_path / "2", port=int(late.rpartition(":")[2]))
        await second.start()
        await eventually(lambda: is_routed(late))
        # and one that is lost and comes back is told at once
        await first.stop()
        first = name_server(tmp_path / "1", port=first.port)
        await first.start()
        await eventually(lambda: is_routed(first.addr))
    finally:
        await one.stop()
        await first.stop()
        await second.stop()


@over_loopback
async def test_040_routes_are_back_after_a_name_server_came_back_empty(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    """Goal: within a registration period, and who has the route goes on meanwhile."""
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr) as (producer,):
        assert (await send(producer, topic)).code == 0
        await eventually(lambda: is_routed(cluster.name_server_addr, topic))
        cluster.stop_name_server()
        assert (await send(producer, topic)).code == 0
        cluster.start_name_server()
        await eventually(lambda: is_routed(cluster.name_server_addr, topic), within_s=30)
        assert (await send(producer, topic)).code == 0


@over_loopback
async def test_a_broker_without_any_name_server_serves(tmp_path: Path) -> None:
    one = broker(tmp_path)
    await one.start()
    try:
        async with connected(one.addr) as (peer,):
            assert (await send(peer, "T")).code == 0
            assert len(records(await pull(peer, "T"))) == 1
    finally:
        await one.stop()


class Seen:
    """Which requests a NameServer got."""

    def __init__(self) -> None:
        self.codes: list[int] = []

    def before(self, connection: Connection, request: Command) -> None:
        self.codes.append(request.code)

    def after(self, connection: Connection, request: Command, response: Command | None) -> None: ...


@pytest.mark.parametrize("force", [True, False])
@over_loopback
async def test_without_force_a_broker_asks_before_it_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool
) -> None:
    monkeypatch.setattr(registration, "FIRST_PERIOD_MS", 50)
    monkeypatch.setattr(BrokerConfig, "register_period_ms", 50)
    names, seen = name_server(tmp_path), Seen()
    names.dispatcher.hooks.append(seen)
    await names.start()
    one = broker(tmp_path, names.addr, force_register=force, compressed_register=True)
    await one.start()
    try:

        async def several_rounds() -> bool:
            return len(seen.codes) >= 5

        await eventually(several_rounds)
        assert await is_routed(names.addr)
        asked = [code for code in seen.codes if code in (103, 322)][1:]
        assert set(asked) == ({103} if force else {322})
        async with connected(one.addr) as (peer,):
            await make_topic(peer, "T")
        await eventually(lambda: is_routed(names.addr, "T"))
        assert 103 in seen.codes[1:]
    finally:
        await one.stop()
        await names.stop()


@over_loopback
async def test_a_name_server_that_never_answers_holds_up_nothing(tmp_path: Path) -> None:
    silent = socket.create_server(("127.0.0.1", 0))  # takes connections, says nothing
    names = name_server(tmp_path)
    await names.start()
    one = broker(tmp_path, f"127.0.0.1:{silent.getsockname()[1]}", names.addr)
    began = asyncio.get_running_loop().time()
    await one.start()
    try:
        assert asyncio.get_running_loop().time() - began < 3
        async with connected(one.addr) as (peer,):
            for number in range(5):
                await make_topic(peer, f"T{number}")
                await eventually(lambda number=number: is_routed(names.addr, f"T{number}"), within_s=1)  # type: ignore[misc]
    finally:
        await one.stop()
        await names.stop()
        silent.close()


@over_loopback
async def test_name_servers_may_change_while_running(tmp_path: Path) -> None:
    first, second = name_server(tmp_path / "1"), name_server(tmp_path / "2")
    await first.start()
    await second.start()
    one = broker(tmp_path, first.addr)
    await one.start()
    try:
        async with connected(one.addr, first.addr, second.addr) as (peer, *both):
            for number, names in enumerate(both):  # two that differ, which must come to rest
                put = {"namespace": "ORDER_TOPIC_CONFIG", "key": f"T{number}", "value": "broker-0:4"}
                assert (await names.ask(RequestCode.PUT_KV_CONFIG, put)).code == 0
                await make_topic(peer, f"T{number}")
            change = f"namesrvAddr={first.addr};{second.addr}\n".encode()
            assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change)).code == 0
            await eventually(lambda: is_routed(second.addr))
            topics = one.parts.topics.table

            async def are_ordered(*expected: bool) -> bool:
                found = [topics.get(f"T{number}") for number in range(2)]
                return [topic is not None and topic.order for topic in found] == [*expected]

            await eventually(lambda: are_ordered(True, True))  # those of both, together
            change = f"namesrvAddr={second.addr}\n".encode()
            assert (await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, body=change)).code == 0
            await eventually(lambda: are_ordered(False, True))
    finally:
        await one.stop()
        await first.stop()
        await second.stop()


@over_loopback
async def test_topics_made_in_a_hurry_are_all_routed(make_rocketq_cluster: MakeCluster) -> None:
    """Goal: an older registration never undoes a newer one."""
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr, cluster.name_server_addr) as (peer, names):
        await asyncio.gather(*(make_topic(peer, f"T{number}", queues=1) for number in range(50)))
        await asyncio.gather(*(make_topic(peer, f"T{number}", queues=3) for number in range(50)))
        found = [await route(names, f"T{number}") for number in range(50)]
        assert all(one is not None and one.queues[0].write_queue_count == 3 for one in found)


@over_loopback
async def test_a_topic_does_not_wait_long_for_a_name_server_that_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the one that answers has the route when the topic is acknowledged, whatever becomes of the other."""
    monkeypatch.setattr(registration, "WAIT_MS_MAX", 200)
    first = name_server(tmp_path / "1")
    await first.start()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connects, and that is all
        one = broker(tmp_path, first.addr, f"127.0.0.1:{silent.getsockname()[1]}")
        await one.start()
        try:
            async with connected(one.addr) as (peer,):
                await make_topic(peer, "T")
            assert await is_routed(first.addr, "T")
        finally:
            await one.stop()
            await first.stop()


@over_loopback
async def test_a_stop_answers_held_pulls_and_is_quick(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster()
    async with connected(cluster.broker_addr) as (peer,):
        await make_topic(peer, topic)
        held = [hold(peer, topic, queue_id=number, suspendTimeoutMillis=60_000) for number in range(3)]
        await heartbeat(peer, "c1", "g")
        began = asyncio.get_running_loop().time()
        await asyncio.to_thread(cluster.stop_broker)
        assert asyncio.get_running_loop().time() - began < 3
        assert [(await one).code for one in held] == [19, 19, 19]
        await asyncio.wait_for(peer.closed.wait(), 5)
    cluster.start_broker()


@over_loopback
async def test_a_client_that_vanishes_before_the_disk_has_its_message(
    make_rocketq_cluster: MakeCluster, topic: str
) -> None:
    cluster = make_rocketq_cluster(settings={"flushDiskType": "SYNC_FLUSH"})
    store = cluster.brokers[0].parts.store
    async with connected(cluster.broker_addr) as (stays,):
        await make_topic(stays, topic)
        store.log.flush = lambda **given: store.gate.position  # type: ignore[method-assign]
        async with connected(cluster.broker_addr) as (goes,):
            for _ in range(20):
                goes.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic)), b"x")
            assert (await goes.ask(RequestCode.GET_MIN_OFFSET, {"topic": topic, "queueId": 0})).code == 0
        mine = stays.start(RequestCode.SEND_MESSAGE_V2, letters(send_fields(topic)), b"mine")
        del store.log.flush
        store.flush()
        assert (await mine).code == 0
        found = records(await pull(stays, topic))
        assert [record.body for record in found] == [b"x"] * 20 + [b"mine"]


@over_loopback
async def test_restarts_under_load_lose_nothing_acknowledged(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    cluster = make_rocketq_cluster()
    acknowledged: list[bytes] = []
    running = True

    async def produce(name: int) -> None:
        number = 0
        while running:
            try:
                async with connected(cluster.broker_addr) as (peer,):
                    while running and not peer.closed.is_set():
                        body = b"%d-%d" % (name, number)
                        number += 1
                        answer = await asyncio.wait_for(send(peer, topic, body), 1)
                        if answer.code == 0:
                            acknowledged.append(body)
            except (OSError, TimeoutError):
                await asyncio.sleep(0.01)

    producers = [asyncio.create_task(produce(name)) for name in range(4)]
    for _ in range(3):
        before = len(acknowledged)

        async def some_more(before: int = before) -> bool:
            return len(acknowledged) > before + 50

        await eventually(some_more)
        await asyncio.to_thread(cluster.restart_broker)
    running = False
    await asyncio.gather(*producers)
    async with connected(cluster.broker_addr) as (peer,):
        assert set(acknowledged) <= set(await everything(peer, topic))


async def everything(peer: Peer, topic: str) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        answer = await pull(peer, topic, len(bodies))
        if answer.code != 0:
            return bodies
        bodies += [record.body for record in records(answer)]


@over_loopback
async def test_a_guard_may_refuse_any_request(make_rocketq_cluster: MakeCluster, topic: str) -> None:
    """Goal: the place for access control, at both ports."""
    cluster = make_rocketq_cluster()

    def guard(request: Command, connection: Connection) -> Command | None:
        return request.answer(16, remark="not for you") if request.code == RequestCode.SEND_MESSAGE_V2 else None

    cluster.brokers[0].guards.append(guard)
    host, _, port = cluster.broker_addr.rpartition(":")
    async with connected(cluster.broker_addr, f"{host}:{int(port) - 2}") as peers:
        for peer in peers:
            assert (await send(peer, topic)).code == 16


def test_the_plugin_gives_a_cluster(tmp_path: Path) -> None:
    """Goal: a user's test needs nothing but the fixture's name."""
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(
            """
            import socket

            def test_shared(rocketq_cluster):
                host, _, port = rocketq_cluster.broker_addr.rpartition(":")
                socket.create_connection((host, int(port))).close()

            def test_own(make_rocketq_cluster):
                assert len(make_rocketq_cluster(brokers=2).broker_addrs) == 2
            """
        )
    )
    plugin = ["-p", "rocketq.testing.pytest_plugin"]  # an installed package needs not even that
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", *plugin, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout


def test_a_cluster_can_be_stopped_and_leaves_nothing(tmp_path: Path) -> None:
    cluster = EmbeddedCluster()
    with cluster:
        folder = cluster.data_dir
        assert (cluster.store_dir() / "commitlog").is_dir()
    assert not folder.exists()
    cluster.stop()  # again is fine
    with EmbeddedCluster(data_dir=tmp_path / "kept"):
        pass
    assert (tmp_path / "kept" / "broker-0" / "checkpoint").exists()
