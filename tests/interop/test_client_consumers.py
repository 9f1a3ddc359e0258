"""Our consumers with Apache's brokers: the scenes our own broker is held to, and groups mixed with Java's consumers."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocketq.client import AsyncPushConsumer
from rocketq.testing.embedded import EmbeddedCluster
from tests.contract.client.consuming import QUICK, Remembers, fill, numbers, send, until
from tests.contract.client.delivery_scenes import SCENES, SETTINGS, Scene
from tests.contract.client.outage_scenes import OUTAGES
from tests.contract.client.outage_scenes import Scene as OutageScene

from . import processes
from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .cache import Unavailable
from .release import obtain
from .routes import await_route

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]
_NUMBERS = itertools.count()


@pytest.fixture(scope="module", params=VERSIONS)
def addr(
    request: pytest.FixtureRequest,
    nameserver: Callable[[str], ApacheNameServer],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[str]:
    """The NameServer of a cluster of one Apache broker with quick retries."""
    folder: Path = tmp_path_factory.mktemp("consumers")
    names = nameserver(request.param)
    broker = ApacheBroker(
        names, port=free_broker_port(), store=folder / "store", work=folder / "work", settings=dict(SETTINGS)
    )
    with broker:
        await_route(names.address)
        yield names.address


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_scenes_with_apache(addr: str, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the same suite, the same results."""
    name = f"{scene.__name__}-{next(_NUMBERS)}"[:60]
    asyncio.run(asyncio.wait_for(scene(addr, f"T-{name}", f"G-{name}", monkeypatch), 90))


@pytest.mark.parametrize("scene", OUTAGES, ids=lambda scene: scene.__name__)
def test_outages_with_apache(addr: str, scene: OutageScene) -> None:
    """Goal: NameServers, brokers and locks fail in the same way, and clients recover."""
    name = f"{scene.__name__}-{next(_NUMBERS)}"[:60]
    asyncio.run(asyncio.wait_for(scene(addr, f"T-{name}", f"G-{name}"), 90))


class JavaMember:
    """A consumer of Apache's in a process of its own."""

    def __init__(self, version: str, addr: str, topic: str, group: str, mode: str, home: Path) -> None:
        home.mkdir(exist_ok=True)
        self.owned: set[int] = set()
        self.got: list[tuple[int, bytes]] = []
        command = [*obtain(version).java(heap_mb=128, home=home), "Member", addr, topic, group, mode]
        self._log = (home / "member.log").open("wb")
        self._process = processes.start(command, log=self._log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def ask(self) -> None:
        """Has `owned` told anew."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)
        self._reader.join(10)
        self._log.close()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self.leave()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            match line.split():
                case [b"owned", *queue_ids]:
                    self.owned = {int(one) for one in queue_ids}
                case [b"got", queue_id, body]:
                    self.got.append((int(queue_id), body))
        self._process.stdout.close()


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
def test_java_and_we_share_a_group(addr: str, mode: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Goal: members of both kinds come to the same shares: no queue has two owners, none has no owner."""
    version = request.node.callspec.params["addr"]
    share_a_group(version, addr, f"Mixed-{mode}-{next(_NUMBERS)}", mode, tmp_path)


@pytest.mark.parametrize("mode", ["concurrent", "orderly"])
@pytest.mark.parametrize("version", VERSIONS)
def test_java_and_we_share_a_group_at_our_broker(version: str, mode: str, tmp_path: Path) -> None:
    try:
        obtain(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    with EmbeddedCluster(settings={"brokerName": "broker-a"}) as cluster:
        share_a_group(version, cluster.name_server_addr, f"Ours-{mode}", mode, tmp_path)


def share_a_group(version: str, addr: str, topic: str, mode: str, folder: Path) -> None:
    group = f"G-{topic}"

    async def run() -> None:
        await fill(addr, topic, 40, queues=8)
        listener = Remembers()
        java = JavaMember(version, addr, topic, group, mode, folder / "java")
        try:
            async with AsyncPushConsumer(
                group, listener, name_servers=addr, config=QUICK, orderly=mode == "orderly"
            ) as consumer:
                consumer.subscribe(topic)

                def shared() -> bool:
                    java.ask()
                    return len(java.owned) == len(consumer.assignment()) == 4

                await until(shared, 90, lambda: (java.owned, consumer.assignment()))
                ours = {queue.queue_id for queue in consumer.assignment()}
                assert ours | java.owned == set(range(8))
                await send(addr, topic, range(40, 120))
                everything = numbers(0, 120)
                # Java begins with a queue in order when it renews its locks the next time: up to 20 s later
                await until(lambda: set(listener.bodies) | {body for _, body in java.got} >= everything, 60)
                late = [(queue_id, body) for queue_id, body in java.got if int(body) >= 40]
                assert {queue_id for queue_id, _ in late} == java.owned
                new = [message for message in listener.messages if int(message.body) >= 40]
                assert {message.queue.queue_id for message in new} == ours
                assert len(late) + len(new) == 80
                await asyncio.to_thread(java.leave)
                await until(lambda: len(consumer.assignment()) == 8, 60)
        finally:
            java.kill()

    asyncio.run(asyncio.wait_for(run(), 240))
