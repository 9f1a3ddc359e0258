"""A broker is killed at random moments while delays, timers and retries are pending, again and again on one directory.

Whatever was answered with success arrives, once, and not before its time.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketq.model import Record
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.testing.embedded import SMALL_FILES
from tests.adversity import test_transaction_crash as killing
from tests.contract.broker.kit import Peer, connected, make_topic, props, pull, records, send

GROUP = "G"
RETRY = f"%RETRY%{GROUP}"
KILLS = 50
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": str(1 << 16),
    "messageDelayLevel": "1s 2s",
    "flushDelayOffsetInterval": "300",
    "fileReservedTime": "9999",
}


@pytest.fixture
def brokers(work_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[killing.Brokers]:
    monkeypatch.setattr(killing, "SETTINGS", SETTINGS)
    made = killing.Brokers(work_dir / "store", work_dir / "brokers.log")
    yield made
    made.close()


@dataclass
class Clients:
    chance: random.Random
    asked: dict[str, int] = field(default_factory=dict)
    """By body, the earliest moment it may arrive."""
    answered: set[str] = field(default_factory=set)
    given_back: Counter[str] = field(default_factory=Counter)
    """Retries asked for, by body."""
    taken_back: Counter[str] = field(default_factory=Counter)
    """Those answered with success."""

    async def work(self, addr: str) -> None:
        with suppress(OSError, TimeoutError):
            async with connected(addr) as (peer,):
                await asyncio.gather(*(self._send(peer) for _ in range(3)), self._give_back(peer))

    async def _send(self, peer: Peer) -> None:
        while not peer.closed.is_set():
            body, delay_ms = f"m{len(self.asked)}", self.chance.randrange(1, 2_000)
            text, wait_ms = props(UNIQ_KEY=body, TIMER_DELAY_MS=str(delay_ms)), delay_ms
            if self.chance.random() < 0.5:
                level = self.chance.choice((1, 1, 2))
                text, wait_ms = props(UNIQ_KEY=body, DELAY=str(level)), 1_000 * level
            self.asked[body] = int(time.time() * 1000) + wait_ms
            answer = await killing.until_closed(peer, send(peer, "T", body.encode(), properties=text))
            if isinstance(answer, Command) and answer.code == 0:
                self.answered.add(body)
            await asyncio.sleep(self.chance.random() * 0.004)

    async def _give_back(self, peer: Peer) -> None:
        offset = 0
        while not peer.closed.is_set():
            await asyncio.sleep(0.01)
            found = await killing.until_closed(peer, pull(peer, "T", offset))
            if not isinstance(found, Command) or found.code != 0:
                continue
            batch = records(found)
            offset = batch[-1].queue_offset + 1
            record = self.chance.choice(batch)
            fields = {"offset": record.log_offset, "group": GROUP, "delayLevel": 1}
            self.given_back[record.body.decode()] += 1
            answer = await killing.until_closed(peer, peer.ask(RequestCode.CONSUMER_SEND_MSG_BACK, fields))
            if isinstance(answer, Command) and answer.code == 0:
                self.taken_back[record.body.decode()] += 1


async def everything(peer: Peer, topic: str) -> list[Record]:
    found: list[Record] = []
    while True:
        answer = await pull(peer, topic, len(found))
        if answer.code != 0:
            return found
        found += records(answer)


async def settle(addr: str, clients: Clients) -> tuple[list[Record], list[Record]]:
    """What has arrived once nothing more comes."""
    async with connected(addr) as (peer,):
        await asyncio.sleep(3.5)
        while True:
            found, retried = await everything(peer, "T"), await everything(peer, RETRY)
            missing = clients.answered - {record.body.decode() for record in found}
            if not missing or time.time() * 1000 > max(clients.asked.values()) + 15_000:
                return found, retried
            await asyncio.sleep(0.3)


def check(clients: Clients, found: list[Record], retried: list[Record]) -> None:
    arrived = Counter(record.body.decode() for record in found)
    assert clients.answered - set(arrived) == set(), "lost"
    assert {body: count for body, count in arrived.items() if count > 1} == {}, "twice"
    assert [record for record in found if record.store_ms < clients.asked[record.body.decode()]] == [], "early"
    again = Counter(record.body.decode() for record in retried)
    assert clients.taken_back - again == Counter(), "retries lost"
    assert again - clients.given_back == Counter(), "retries nobody asked for"


@pytest.mark.slow
def test_kills_while_delays_timers_and_retries_are_pending_lose_and_repeat_nothing(brokers: killing.Brokers) -> None:
    seed = random.randrange(1 << 32)
    clients = Clients(random.Random(seed))

    async def live() -> None:
        brokers.start()
        async with connected(brokers.addr) as (peer,):
            await make_topic(peer, "T", queues=1)
        for _ in range(KILLS):
            working = asyncio.create_task(clients.work(brokers.addr))
            await asyncio.sleep(clients.chance.uniform(0.02, 0.6))
            await asyncio.to_thread(brokers.kill)
            await working
            await asyncio.to_thread(brokers.start)
        check(clients, *await settle(brokers.addr, clients))

    asyncio.run(live())
    assert len(clients.answered) > 1_000, seed
    assert clients.taken_back.total() > 50, seed
