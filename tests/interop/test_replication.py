"""The classic stream with Apache 4.9.7: our slave behind its master, its slave behind ours, and Java's consumer."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rocketq.client import Message, Producer, SendStatus
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import ConnectionPool

from . import processes
from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .client_programs import HEAP_MB
from .our_cluster import OurCluster
from .release import Release

pytestmark = pytest.mark.interop

VERSION = "4.9.7"
TOPIC = "Copied"
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}
CATCH_UP_SECONDS_MAX = 60.0

NameServers = Callable[[str], ApacheNameServer]


@contextmanager
def our_broker(folder: Path, names: ApacheNameServer, **settings: str) -> Iterator[OurCluster]:
    """Of its own process and port; ended in the end, however it goes."""
    folder.mkdir()
    broker = OurCluster(folder)
    flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    try:
        broker.start("broker", "-n", names.address, "--port", "0", "--data-dir", str(folder / "data"), *flags)
        yield broker
        broker.stop()
    finally:
        broker.kill()


def apache_broker(folder: Path, names: ApacheNameServer, **settings: str) -> ApacheBroker:
    return ApacheBroker(names, port=free_broker_port(), store=folder / "data", work=folder, settings=settings or None)


def log_end(addr: str) -> int:
    """What a broker itself says; -1 while Apache's is not ready to say anything."""

    async def ask() -> int:
        pool = ConnectionPool()
        try:
            answer = await pool.invoke(addr, Command(code=RequestCode.GET_BROKER_RUNTIME_INFO))
            return int(KeyValues.decode(answer.body).table["commitLogMaxOffset"]) if answer.code == 0 else -1
        finally:
            await pool.close()

    return asyncio.run(ask())


def await_level(master: str, slave: str) -> int:
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while (end := log_end(master)) != log_end(slave):
        assert time.monotonic() < deadline, f"the slave is at {log_end(slave)}, its master at {end}"
        time.sleep(0.2)
    return end


def send_some(names: ApacheNameServer, count: int, first: int = 0, size: int = 2_000) -> list[SendStatus]:
    with Producer("replica-writers", name_servers=names.address) as producer:
        bodies = [
            f"{number} ".encode() + random.Random(number).randbytes(size + number * 37 % size)
            for number in range(first, first + count)
        ]
        messages = [
            Message(topic=TOPIC, body=body, keys=(f"k{first + at}",), tag="AB"[at % 2])
            for at, body in enumerate(bodies)
        ]
        statuses = [producer.send(message).status for message in messages]
        for at in range(0, count // 10, 10):
            statuses += [result.status for result in producer.send_batch(messages[at : at + 10])]
    return statuses


def log_of(folder: Path, start: int, end: int) -> bytes:
    """The log's bytes of a data folder, from its files by their names."""
    files = sorted((folder / "data" / "commitlog").iterdir())
    whole = {int(path.name): path.read_bytes() for path in files if path.name.isdigit()}
    return b"".join(data for base, data in sorted(whole.items()) if base >= start)[: end - start]


@contextmanager
def java_consumer(release: Release, names: ApacheNameServer, home: Path, count: int) -> Iterator[Callable[[], int]]:
    """How many different messages it has seen so far; it is ended with the test."""
    home.mkdir()
    command = [*release.java(heap_mb=HEAP_MB, home=home), "Replica", "consume", names.address, TOPIC]
    environment = {**os.environ, "HOME": str(home), "COUNT": str(count)}
    said = home / "said"
    with (home / "log").open("wb") as log, said.open("wb") as out:
        process = processes.start(command, log=log, stdout=out, cwd=home, env=environment)
    try:
        yield lambda: int(([b"seen 0", *said.read_bytes().splitlines()])[-1].split()[1])
    finally:
        process.kill()
        process.wait()


def await_seen(seen: Callable[[], int], count: int, seconds_max: float) -> None:
    deadline = time.monotonic() + seconds_max
    while seen() < count:
        assert time.monotonic() < deadline, f"the consumer has seen {seen()} of {count}"
        time.sleep(0.1)


def test_our_slave_follows_an_apache_master_and_serves_when_it_is_killed(
    nameserver: NameServers, tmp_path: Path
) -> None:
    """Goal: byte-equal logs over several files, also after our slave was away; Java's consumer reads the rest of it."""
    names = nameserver(VERSION)
    with apache_broker(tmp_path / "master", names) as master:
        with our_broker(tmp_path / "slave", names, **SLAVE) as slave:
            send_some(names, 1_200)
            await_level(master.address, slave.broker_addr)
            slave.kill()
            send_some(names, 300, 1_200)
            port = slave.broker_addr.rpartition(":")[2]
            data = str(tmp_path / "slave" / "data")
            flags = [part for key, value in SLAVE.items() for part in ("--set", f"{key}={value}")]
            slave.start("broker", "-n", names.address, "--port", port, "--data-dir", data, *flags)
            send_some(names, 100, 1_500)
            end = await_level(master.address, slave.broker_addr)
            assert end > 2 * (2 << 20)
            time.sleep(12)  # two turns of the tables: the slave knows topic and group
            with java_consumer(names.release, names, tmp_path / "consumer", 1_600) as seen:
                await_seen(seen, 200, 60)
                before = seen()
                assert "cannot be copied" not in slave.log()
                master.kill()
                assert before < 1_600
                await_seen(seen, 1_600, 100)
        assert log_of(tmp_path / "slave", 0, end) == log_of(tmp_path / "master", 0, end)


def test_new_slave_of_an_apache_master_begins_with_its_last_file(nameserver: NameServers, tmp_path: Path) -> None:
    """Goal: 4.9.7 gives a slave that comes late its last file only; from there on the logs are the same."""
    names = nameserver(VERSION)
    with apache_broker(tmp_path / "master", names) as master:
        send_some(names, 1_600)
        start = log_end(master.address) // (2 << 20) * (2 << 20)
        assert start > 0
        with our_broker(tmp_path / "slave", names, **SLAVE) as slave:
            await_level(master.address, slave.broker_addr)
            send_some(names, 800, 1_600)
            end = await_level(master.address, slave.broker_addr)
            assert end > start + (2 << 20)
    assert log_of(tmp_path / "slave", start, end) == log_of(tmp_path / "master", start, end)


@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
def test_apache_slave_follows_our_master(role: str, nameserver: NameServers, tmp_path: Path) -> None:
    """Goal: a slave of 4.9.7 gets all our files from the first on, and its word counts for SYNC_MASTER."""
    names = nameserver(VERSION)
    with our_broker(tmp_path / "master", names, brokerRole=role) as master:
        send_some(names, 700)
        with apache_broker(tmp_path / "slave", names, **SLAVE) as slave:
            await_level(master.broker_addr, slave.address)
            statuses = send_some(names, 700, 700)
            assert set(statuses) == {SendStatus.SEND_OK}
            end = await_level(master.broker_addr, slave.address)
            assert end > 2 * (2 << 20)
            slave.stop()
            if role == "SYNC_MASTER":
                time.sleep(1)
                assert set(send_some(names, 5, 1_400)) == {SendStatus.SLAVE_NOT_AVAILABLE}
            send_some(names, 200, 1_400)
            with slave:
                end = await_level(master.broker_addr, slave.address)
    assert log_of(tmp_path / "slave", 0, end) == log_of(tmp_path / "master", 0, end)


def test_java_consumer_reads_the_rest_from_an_apache_slave_of_ours(nameserver: NameServers, tmp_path: Path) -> None:
    """Goal: our master is killed; its tables went to the Apache slave, which serves the rest."""
    names = nameserver(VERSION)
    with our_broker(tmp_path / "master", names) as master, apache_broker(tmp_path / "slave", names, **SLAVE) as slave:
        send_some(names, 900, size=200)
        await_level(master.broker_addr, slave.address)
        time.sleep(12)
        with java_consumer(names.release, names, tmp_path / "consumer", 900) as seen:
            await_seen(seen, 100, 60)
            assert seen() < 900
            master.kill()
            await_seen(seen, 900, 100)
