"""Many connections, mixed traffic, clients that drop out, one kill -9: nothing acknowledged is lost, memory is flat."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from itertools import count
from pathlib import Path

import pytest

from tests.contract.broker.kit import Peer, connected, hold, make_topic, over_loopback, pull, records, send
from tests.contract.broker.test_cli import Process, Start, start, up

__all__ = ["start"]

CONNECTIONS = 200
SECONDS = 8
TOPICS = [f"Soak{number}" for number in range(4)]
QUEUES = 4
CONNECTION_NUMBERS = count()  # a body names its connection and its turn there: no two are alike


class Soak:
    """What producers know to be stored, and what is going on."""

    def __init__(self, addr: str) -> None:
        self.addr = addr
        self.acknowledged: set[tuple[str, bytes]] = set()
        self.running = True
        self.pulls = 0

    async def client(self, number: int) -> None:
        """Produces or consumes over one connection after the other, each cut at a random moment."""
        chance = random.Random(number)
        work = self._produce if number % 2 else self._consume
        while self.running:
            try:
                connection = next(CONNECTION_NUMBERS)
                async with connected(self.addr) as (peer,):
                    for turn in range(chance.randrange(5, 60)):
                        if not self.running or peer.closed.is_set():
                            break
                        await asyncio.wait_for(work(peer, chance, f"{connection}-{turn}"), 3)
            except (OSError, TimeoutError):
                await asyncio.sleep(0.05)

    async def _produce(self, peer: Peer, chance: random.Random, name: str) -> None:
        topic = chance.choice(TOPICS)
        answer = await send(peer, topic, name.encode(), queue_id=chance.randrange(QUEUES))
        if answer.code == 0:
            self.acknowledged.add((topic, name.encode()))

    async def _consume(self, peer: Peer, chance: random.Random, name: str) -> None:
        topic, queue_id = chance.choice(TOPICS), chance.randrange(QUEUES)
        await pull(peer, topic, chance.randrange(50), queue_id=queue_id, group="soak")
        hold(peer, topic, 1 << 20, queue_id=queue_id, group="soak", suspendTimeoutMillis=200)  # past the end: answered
        hold(peer, topic, 0, queue_id=queue_id, group="soak", subscription="nothing", suspendTimeoutMillis=60_000)
        self.pulls += 1


async def everything(peer: Peer, topic: str, queue_id: int) -> list[bytes]:
    bodies: list[bytes] = []
    while True:
        fields = {"queue_id": queue_id, "group": "soak-check", "maxMsgNums": 4_000, "maxMsgBytes": 1 << 20}
        answer = await pull(peer, topic, len(bodies), **fields)
        if answer.code != 0:
            return bodies
        bodies += [record.body for record in records(answer)]


def resident_kb(process: Process) -> int:
    status = Path(f"/proc/{process.child.pid}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon"))


async def soak_for(seconds: float, addr: str, known: set[tuple[str, bytes]]) -> Soak:
    soak = Soak(addr)
    clients = [asyncio.create_task(soak.client(number)) for number in range(CONNECTIONS)]
    await asyncio.sleep(seconds)
    known |= soak.acknowledged
    soak.running = False
    await asyncio.gather(*clients)
    known |= soak.acknowledged
    return soak


@pytest.mark.slow
@over_loopback
async def test_soak(tmp_path: Path, start: Start) -> None:
    process = start(*up(tmp_path / "data"))
    addr = process.addresses()["broker-0"]
    known: set[tuple[str, bytes]] = set()
    async with connected(addr) as (peer,):
        for topic in TOPICS:
            await make_topic(peer, topic, queues=QUEUES)
    await soak_for(SECONDS / 4, addr, known)
    warm_kb = resident_kb(process)
    await soak_for(SECONDS / 2, addr, known)
    assert resident_kb(process) < warm_kb + 30 * 1024
    killed = asyncio.create_task(soak_for(SECONDS / 4, addr, known))
    await asyncio.sleep(SECONDS / 8)
    process.kill()
    await killed
    process = start(*up(tmp_path / "data"))
    addr = process.addresses()["broker-0"]
    stored: Counter[tuple[str, bytes]] = Counter()
    async with connected(addr) as (peer,):
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                stored.update((topic, body) for body in await everything(peer, topic, queue_id))
    assert len(known) > 300
    assert known <= set(stored)
    assert set(stored.values()) == {1}
    process.stop()
