"""Our broker at Apache's NameServers: registrations in several requests, and over TLS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.broker import Broker, BrokerConfig
from rocketq.broker.admin import registration
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import ClientTls, ConnectionPool
from rocketq.store import StoreConfig
from tests.contract.broker.kit import connected, make_topic

from .apache import ApacheNameServer

pytestmark = pytest.mark.interop
VERSIONS = ("4.7.1", "4.9.7", "5.3.3")
TOPICS = [f"Split-{number:03}-{'x' * 80}" for number in range(40)]


def store_config(folder: Path) -> StoreConfig:
    return StoreConfig(
        root=folder / "store", segment_bytes=16 << 20, disk_refuse_ratio=0.99, disk_force_clean_ratio=0.98
    )


async def perms(addr: str) -> dict[str, int]:
    """The permissions of the topics that the NameServer routes."""
    pool = ConnectionPool()
    try:
        found = {}
        for topic in TOPICS:
            answer = await pool.invoke(
                addr, Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": topic})
            )
            if answer.code == 0:
                found[topic] = TopicRoute.decode(answer.body).queues[0].perm
        return found
    finally:
        await pool.close()


async def until(addr: str, expected: dict[str, int]) -> None:
    deadline_s = time.monotonic() + 20
    while (found := await perms(addr)) != expected:
        assert time.monotonic() < deadline_s, f"{len(found)} topics of {len(expected)} are routed as they should be"
        await asyncio.sleep(0.2)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("version", VERSIONS)
def test_apaches_nameserver_takes_over_all_parts(
    version: str,
    compressed: bool,
    nameserver: Callable[[str], ApacheNameServer],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: every topic of every part is routed, and a change in any part is seen."""
    monkeypatch.setattr(registration, "PART_BYTES_MAX", 2_000)
    names = nameserver(version)

    async def play() -> None:
        config = BrokerConfig(
            name=f"split-{version}-{compressed}", port=0, name_servers=names.address, compressed_register=compressed
        )
        broker = Broker(
            config,
            StoreConfig(
                root=tmp_path / "store", segment_bytes=16 << 20, disk_refuse_ratio=0.99, disk_force_clean_ratio=0.98
            ),
        )
        await broker.start()
        try:
            async with connected(broker.addr) as (peer,):
                for topic in TOPICS:
                    await make_topic(peer, topic)
                await until(names.address, dict.fromkeys(TOPICS, 6))
                for topic in (TOPICS[0], TOPICS[20], TOPICS[-1]):
                    await make_topic(peer, topic, perm=4)
            await until(names.address, dict.fromkeys(TOPICS, 6) | dict.fromkeys((TOPICS[0], TOPICS[20], TOPICS[-1]), 4))
            assert broker.parts.registrar.check_registered() is None
        finally:
            await broker.stop()

    asyncio.run(play())


@pytest.mark.parametrize("version", VERSIONS[1:])  # 4.7.1 cannot make its certificate with a JDK of today
def test_a_broker_registers_over_tls(
    version: str, nameserver: Callable[[str], ApacheNameServer], tmp_path: Path
) -> None:
    names = nameserver(version)

    async def play() -> None:
        config = BrokerConfig(name=f"tls-{version}", port=0, name_servers=names.address)
        broker = Broker(
            config,
            StoreConfig(
                root=tmp_path / "store", segment_bytes=16 << 20, disk_refuse_ratio=0.99, disk_force_clean_ratio=0.98
            ),
            client_tls=ClientTls(),
        )
        await broker.start()
        try:
            async with connected(broker.addr) as (peer,):
                await make_topic(peer, TOPICS[0])
            await until(names.address, {TOPICS[0]: 6})
        finally:
            await broker.stop()

    asyncio.run(play())
