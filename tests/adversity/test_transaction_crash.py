"""A broker is killed at random moments while transactions are half done, again and again on one directory.

Producers send halves, decide, decide again, change their mind, and answer checks, over real connections; what they were
answered is remembered across kills. In the end every message is there once or not at all, as it was answered.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rocketq.broker.free_port import pick_port
from rocketq.model import decode_message_id
from rocketq.protocol.bodies.clients import Heartbeat, ProducerData
from rocketq.protocol.codes import RequestCode
from rocketq.testing.embedded import SMALL_FILES
from tests.contract.broker.kit import Peer, connected, make_topic, props, pull, records, send

REPOSITORY = Path(__file__).parents[2]
COMMIT, ROLLBACK = 8, 12
QUEUES = 4
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeCommitLog": str(1 << 20),
    "maxMessageSize": str(1 << 16),
    "transactionTimeOut": "50",
    "transactionCheckInterval": "50",
    "transactionCheckMax": "1000000",
    "flushConsumerOffsetInterval": "150",
}


class Brokers:
    """The process that forks brokers."""

    def __init__(self, root: Path, errors: Path) -> None:
        self._root = root
        self.port = pick_port("127.0.0.1")
        self._errors = errors.open("w+")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.adversity.broker_forks"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )
        self._pid = 0

    @property
    def addr(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        assert self._process.stdin is not None
        order = {"root": str(self._root), "port": self.port, "settings": SETTINGS}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self._pid = int(self._line().split()[1])
        assert self._line() == "ready", self._said()

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        self._pid = 0
        assert self._line() == f"reaped {-signal.SIGKILL}", self._said()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()
        self._errors.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def _said(self) -> str:
        self._errors.seek(0)
        return self._errors.read()[-4000:]


@pytest.fixture
def brokers(work_dir: Path) -> Iterator[Brokers]:
    made = Brokers(work_dir / "store", work_dir / "brokers.log")
    yield made
    made.close()


@dataclass
class Sent:
    """A transaction as its producer knows it."""

    wish: int
    handles: list[tuple[int, int]] = field(default_factory=list)
    tried: set[int] = field(default_factory=set)
    outcome: int | None = None


@dataclass
class Producers:
    chance: random.Random
    sent: dict[str, Sent] = field(default_factory=dict)
    refused: int = 0
    checked: int = 0

    async def work(self, addr: str) -> None:
        """Until the broker is gone."""
        with suppress(OSError, TimeoutError):
            async with connected(addr) as (peer,):
                beat = Heartbeat(client_id="c1", producers=(ProducerData(group="pg"),))
                await until_closed(peer, peer.ask(RequestCode.HEART_BEAT, body=beat.encode()))
                await asyncio.gather(self._answer_checks(peer), *(self._decide(peer) for _ in range(4)))

    async def _decide(self, peer: Peer) -> None:
        while not peer.closed.is_set():
            known = list(self.sent.values())
            if not known or self.chance.random() < 0.4:
                await self._send(peer)
                continue
            sent = self.chance.choice(known[-40:] if self.chance.random() < 0.9 else known)
            wanted = sent.wish if self.chance.random() < 0.9 else COMMIT + ROLLBACK - sent.wish
            if sent.handles and self.chance.random() < 0.7:
                await self.end(peer, sent, wanted, self.chance.choice(sent.handles))

    async def _send(self, peer: Peer) -> None:
        key = f"U{len(self.sent)}"
        self.sent[key] = sent = Sent(self.chance.choice((COMMIT, COMMIT, ROLLBACK)))
        named = props(TRAN_MSG="true", PGROUP="pg", UNIQ_KEY=key, WAIT="true")
        fields = {"producerGroup": "pg", "sysFlag": 4, "properties": named, "bornTimestamp": int(time.time() * 1000)}
        asked = send(peer, "T", key.encode(), self.chance.randrange(QUEUES), **fields)
        answer = await until_closed(peer, asked)
        if answer is not None and answer.code == 0:
            log_offset = decode_message_id(answer.ext_fields["msgId"])[1]
            sent.handles.append((int(answer.ext_fields["queueOffset"]), log_offset))

    async def end(self, peer: Peer, sent: Sent, state: int, handle: tuple[int, int]) -> None:
        fields = {
            "producerGroup": "pg",
            "tranStateTableOffset": handle[0],
            "commitLogOffset": handle[1],
            "commitOrRollback": state,
            "msgId": "",
        }
        sent.tried.add(state)
        before = sent.outcome
        answer = await until_closed(peer, peer.ask(RequestCode.END_TRANSACTION, fields))
        if answer is None:
            return
        if answer.code == 0:
            assert sent.outcome in (None, state), f"{sent} was answered the other way before"
            sent.outcome = state
        else:
            self.refused += 1
            assert "before" in (answer.remark or ""), answer
            assert before is not state, f"{sent} was answered so before: {answer}"
            assert len(sent.tried) > 1, f"{sent} was only wanted so: {answer}"

    async def _answer_checks(self, peer: Peer) -> None:
        while not peer.closed.is_set():
            with suppress(TimeoutError):
                check = await asyncio.wait_for(peer.pushes.get(), 0.02)
                if check.code == RequestCode.CHECK_TRANSACTION_STATE:
                    await self.take_check(peer, check.ext_fields)

    async def take_check(self, peer: Peer, fields: dict[str, str]) -> None:
        self.checked += 1
        sent = self.sent[fields["msgId"]]
        sent.handles.append((int(fields["tranStateTableOffset"]), int(fields["commitLogOffset"])))
        if self.chance.random() < 0.5:
            await self.end(peer, sent, sent.outcome or sent.wish, sent.handles[-1])


async def until_closed(peer: Peer, asked: object) -> object | None:
    """The answer, or None when the broker went before it came."""
    answer = asyncio.ensure_future(asked)  # type: ignore[call-overload]
    closed = asyncio.ensure_future(peer.closed.wait())
    await asyncio.wait((answer, closed), return_when=asyncio.FIRST_COMPLETED)
    closed.cancel()
    if not answer.done():
        answer.cancel()
        return None
    return answer.result()


async def settle_all(addr: str, producers: Producers) -> dict[str, int]:
    """Decide on everything that is still open, each twice and once the other way; what is visible then, by key."""
    async with connected(addr) as (peer,):
        for sent in producers.sent.values():
            for handle in sent.handles[:2] + sent.handles[-1:]:
                await producers.end(peer, sent, sent.outcome or sent.wish, handle)
                await producers.end(peer, sent, COMMIT + ROLLBACK - (sent.outcome or sent.wish), handle)
        return await visible(peer)


async def visible(peer: Peer) -> dict[str, int]:
    found: dict[str, int] = {}
    for queue_id in range(QUEUES):
        offset = 0
        while (answer := await pull(peer, "T", offset, queue_id=queue_id)).code == 0:
            for record in records(answer):
                found[record.body.decode()] = found.get(record.body.decode(), 0) + 1
            offset = int(answer.ext_fields["nextBeginOffset"])
    return found


def check(producers: Producers, found: dict[str, int]) -> None:
    assert set(found.values()) <= {1}, "delivered twice"
    for key, sent in producers.sent.items():
        if sent.outcome == COMMIT:
            assert key in found, f"{key} {sent} was committed and is lost"
        elif sent.outcome == ROLLBACK:
            assert key not in found, f"{key} {sent} was rolled back and is there"
        else:
            assert not sent.handles, f"{key} {sent} could not be decided on"
    unknown = [key for key, sent in producers.sent.items() if not sent.handles and key in found]
    assert not unknown, f"{unknown} are visible and were never decided on"


def run_and_kill(brokers: Brokers, producers: Producers, kills: int) -> None:
    async def one_life(first: bool) -> None:
        if first:
            async with connected(brokers.addr) as (peer,):
                await make_topic(peer, "T", queues=QUEUES)
        working = asyncio.create_task(producers.work(brokers.addr))
        await asyncio.sleep(producers.chance.choice((0.01, 0.05, 0.2, 0.4)) * producers.chance.random())
        await asyncio.to_thread(brokers.kill)
        await working

    for number in range(kills):
        brokers.start()
        asyncio.run(one_life(number == 0))
    brokers.start()
    found = asyncio.run(settle_all(brokers.addr, producers))
    brokers.kill()
    check(producers, found)
    brokers.start()  # and nothing of it changes by another start

    async def look() -> dict[str, int]:
        async with connected(brokers.addr) as (peer,):
            return await visible(peer)

    assert asyncio.run(look()) == found


def test_a_killed_broker_ends_every_transaction_once(brokers: Brokers) -> None:
    """Goal: 50 kills; nothing visible uncommitted, nothing twice, nothing lost, nothing decided both ways."""
    producers = Producers(random.Random(6))
    run_and_kill(brokers, producers, 50)
    handed = [sent for sent in producers.sent.values() if sent.handles]
    assert len(handed) > 300
    assert producers.checked > 20
    assert producers.refused > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_more_kills(brokers: Brokers, seed: int) -> None:
    run_and_kill(brokers, Producers(random.Random(seed)), 150)
