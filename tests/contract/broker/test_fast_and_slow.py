"""What the kernel takes is answered and stored exactly as the handlers would: two brokers, the same bytes to both."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from rocketq.broker.app import Broker
from rocketq.broker.config import BrokerConfig
from rocketq.broker.free_port import pick_port
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder
from rocketq.remoting import Connection
from rocketq.runtime.clock import ManualClock
from rocketq.store import StoreConfig
from tests.contract.broker.fast_requests import TOPIC, FrameMaker, beginnings, captured
from tests.contract.broker.kit import letters, over_loopback, pull_fields, send_fields
from tests.contract.broker.other_requests import other_request
from tests.contract.test_kernel_forms import needs_compiled

PEER = ("127.0.0.1", 45_678)
WAIT_S = 20

Sessions = Iterable[Iterable[bytes]]
"""Of each connection, what it brings."""


class Wire(asyncio.Transport):
    """A transport whose peer takes everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closing = False
        self.protocol: Any = None

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return PEER if name in ("peername", "sockname") else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closing

    def set_protocol(self, protocol: Any) -> None:
        self.protocol = protocol

    def close(self) -> None:
        self.closing = True

    abort = close

    def pause_reading(self) -> None:
        pass

    resume_reading = pause_reading


@dataclass
class Outcome:
    """Everything there is to see of a broker that was fed some bytes."""

    answers: list[list[list[bytes]]] = field(default_factory=list)
    closed: list[bool] = field(default_factory=list)
    tables: dict[str, Any] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    taken: int = 0
    pulls_taken: int = 0


class Observer:
    """A hook that does nothing, but every request passes it: on the slow path."""

    def before(self, connection: Connection, request: Command) -> None:
        pass

    def after(self, connection: Connection, request: Command, response: Command | None) -> None:
        pass


class Twin:
    """A broker at a port that its twin has before or after it, fed without a socket."""

    def __init__(self, root: Path, port: int, **settings: str) -> None:
        self._root = root
        self.clock = ManualClock()
        store = StoreConfig.from_java(
            {"mappedFileSizeCommitLog": str(1 << 20), "maxMessageSize": "4096", "mappedFileSizeConsumeQueue": "4000",
             "maxHashSlotNum": "97", "maxIndexNum": "400", **settings},
            root=root,
        )  # fmt: skip
        config = BrokerConfig.from_java(settings, port=port, name="broker-a", cluster="C")
        self.broker = Broker(config, store, clock=self.clock)
        self._endpoint: Any = None

    async def start(self, *, is_fast: bool) -> None:
        await self.broker.start()
        self._endpoint = cast(Any, self.broker)._servers[0]._endpoint
        cast(Any, self.broker).parts.transactions.service._make_key = lambda: "A" * 32  # else it is random
        if not is_fast:
            self._endpoint.dispatcher.hooks.append(Observer())

    async def feed(self, chunks: Iterable[bytes]) -> tuple[list[list[bytes]], bool]:
        """The answers to each piece of what a connection brings, and whether it was closed because of one."""
        wire, connection, answers = Wire(), Connection(self._endpoint), []
        wire.protocol = connection
        connection.connection_made(wire)
        self.clock.advance(1)  # never so far that a delayed message is due, which another thread would deliver
        for chunk in chunks:
            random.seed(1)  # a send to no queue in particular goes by chance
            wire.protocol.data_received(chunk)
            await self.settle()
            answers.append(cut(bytes(wire.sent)))
            wire.sent.clear()
            if wire.closing:
                break
        wire.protocol.connection_lost(None)
        return answers, wire.closing

    async def settle(self) -> None:
        """Until whatever is under way is done, and on disk if it has to be."""
        store = self.broker.parts.store
        async with asyncio.timeout(WAIT_S):
            while self._endpoint.dispatcher._tasks or store.visible_to < store.log_end:
                await asyncio.sleep(0.001)
            for _ in range(4):
                await asyncio.sleep(0)

    async def stop(self) -> Outcome:
        parts, outcome = self.broker.parts, Outcome()
        self.broker.fast_paths[0].collect()  # as before any handler that would look
        stats = parts.stats.broker_stats
        now = stats.totals.now
        outcome.tables = {
            "offsets": parts.groups.offsets.body().offsets,
            "positions": dict(cast(Any, parts.groups.positions)._offsets),
            "totals": (now.put, now.put_bytes, now.put_failed, now.found, now.missed, now.transferred),
            "table": {key: (m.value, m.times) for key, m in cast(Any, stats.table)._counters.items()},
            "ends": {repr(queue): queue.end_offset for queue in parts.store.queues},
            "last record": parts.store.writer.last_record,
        }
        outcome.taken, outcome.pulls_taken = self.broker.fast_paths[0].taken, self.broker.fast_paths[0].pulls_taken
        await self.broker.stop(drain_ms=0)
        for folder in ("commitlog", "consumequeue", "index"):
            paths = sorted(path for path in (self._root / folder).rglob("*") if path.is_file())
            contents = b"".join(path.read_bytes() for path in paths)
            outcome.files[folder] = hashlib.sha1(contents).hexdigest()
        return outcome


def cut(sent: bytes) -> list[bytes]:
    """Bytes that were sent as frames; what the broker asks by itself is left out."""
    frames, at = [], 0
    while at < len(sent):
        size = 4 + int.from_bytes(sent[at : at + 4], "big")
        frames.append(sent[at : at + size])
        at += size
    assert at == len(sent)
    commands = FrameDecoder().feed(sent)
    return [frame for frame, command in zip(frames, commands, strict=True) if command.is_response]


async def run(root: Path, port: int, sessions: Sessions, *, is_fast: bool, **settings: str) -> Outcome:
    twin = Twin(root, port, **settings)
    await twin.start(is_fast=is_fast)
    member = Connection(cast(Any, twin)._endpoint)
    member.connection_made(Wire())
    for frame in beginnings():
        member.data_received(frame)
        await twin.settle()
    answers, closed = [], []
    for chunks in sessions:
        given, was_closed = await twin.feed(chunks)
        answers.append(given)
        closed.append(was_closed)
    outcome = await twin.stop()
    outcome.answers, outcome.closed = answers, closed
    return outcome


async def both(tmp_path: Path, sessions: Callable[[], Sessions], **settings: str) -> tuple[Outcome, Outcome]:
    port = pick_port("127.0.0.1")
    fast = await run(tmp_path / "fast", port, sessions(), is_fast=True, **settings)
    slow = await run(tmp_path / "slow", port, sessions(), is_fast=False, **settings)
    return fast, slow


def assert_same(fast: Outcome, slow: Outcome) -> None:
    assert slow.taken == slow.pulls_taken == 0
    for number, (ours, theirs) in enumerate(zip(fast.answers, slow.answers, strict=True)):
        assert ours == theirs, f"connection {number}"
    assert fast.closed == slow.closed
    assert fast.tables == slow.tables
    assert fast.files == slow.files


@pytest.mark.parametrize("seed", range(3))
@over_loopback
async def test_any_frames_in_any_pieces_have_one_outcome(tmp_path: Path, seed: int) -> None:
    """Goal: sends, batches and pulls in both forms, plain, odd and damaged: same answers, same order, same files."""
    fast, slow = await both(tmp_path, lambda: FrameMaker(seed).sessions(500))
    assert_same(fast, slow)
    assert fast.taken > 200
    assert fast.pulls_taken > 25


@over_loopback
async def test_plain_frames_are_taken_by_the_kernel(tmp_path: Path) -> None:
    """Goal: with nothing odd about them nearly all sends and pulls with data are the kernel's."""
    fast, slow = await both(tmp_path, lambda: FrameMaker(7, odd=0.0).sessions(500))
    assert_same(fast, slow)
    assert fast.taken > 300
    assert fast.pulls_taken > 60


@pytest.mark.parametrize("seed", range(2))
@over_loopback
async def test_answers_that_wait_for_the_disk_are_the_same(tmp_path: Path, seed: int) -> None:
    """Goal: with SYNC_FLUSH too; WAIT=false is answered at once, everything else when it is on disk."""
    sessions = [[frame] for frame in FrameMaker(seed).frames(250)]
    fast, slow = await both(tmp_path, lambda: sessions, flushDiskType="SYNC_FLUSH")
    assert_same(fast, slow)
    assert fast.taken > 60
    assert fast.pulls_taken > 15


@pytest.mark.parametrize("seed", range(4))
@over_loopback
async def test_changes_between_sends_and_pulls_have_one_outcome(tmp_path: Path, seed: int) -> None:
    """Goal: delayed and half messages, send-backs, heartbeats, commits, and changes of topics, groups, settings and
    quotas, in the same reads as sends and pulls. Answers that wait for the disk may overtake each other."""
    fast, slow = await both(tmp_path, lambda: FrameMaker(seed, others=other_request).sessions(600))
    for outcome in (fast, slow):
        outcome.answers = [[sorted(chunk) for chunk in chunks] for chunks in outcome.answers]
    assert_same(fast, slow)
    assert fast.taken > 20
    assert fast.pulls_taken > 5


@pytest.mark.parametrize(
    "settings",
    [{}, {"flushDiskType": "SYNC_FLUSH"}, {"traceTopicEnable": "true"}, {"brokerRole": "SLAVE", "brokerId": "1"}],
    ids=["master", "on disk", "traced", "slave"],
)
@over_loopback
async def test_one_request_at_a_time_has_one_outcome(tmp_path: Path, settings: dict[str, str]) -> None:
    """Goal: the same with every answer in its order, as a master, a slave, traced, and with answers that wait."""
    sessions = [[frame] for frame in FrameMaker(17, others=other_request).frames(300)]
    fast, slow = await both(tmp_path, lambda: sessions, **settings)
    assert_same(fast, slow)
    assert (fast.taken > 20) == ("brokerRole" not in settings)


@over_loopback
async def test_an_ipv6_store_host_is_told_in_the_ids(tmp_path: Path) -> None:
    fast, slow = await both(
        tmp_path, lambda: FrameMaker(3).sessions(200), brokerIP1="fd00::17", bindAddress="127.0.0.1"
    )
    assert_same(fast, slow)
    assert fast.taken > 40


@over_loopback
async def test_captured_frames_have_one_outcome(tmp_path: Path) -> None:
    """Goal: what real clients sent, each frame twice, byte by byte the second time."""
    frames = captured()
    bytewise = [frame[at : at + 1] for frame in frames if len(frame) < 2_000 for at in range(len(frame))]
    fast, slow = await both(tmp_path, lambda: [frames, bytewise])
    assert_same(fast, slow)
    assert fast.taken > 10
    assert fast.pulls_taken > 5


@over_loopback
async def test_small_files_are_rolled(tmp_path: Path) -> None:
    """Goal: the log, a queue and the index go on in new files in the midst of what the kernel takes."""
    small = {"mappedFileSizeCommitLog": "16384", "mappedFileSizeConsumeQueue": "400", "maxIndexNum": "60"}
    fast, slow = await both(tmp_path, lambda: FrameMaker(11).sessions(300), **small)
    assert_same(fast, slow)
    assert fast.taken > 60
    assert len(list((tmp_path / "fast" / "commitlog").iterdir())) > 5


class SlowWire(Wire):
    """A transport whose peer reads only when it is told to."""

    def __init__(self, high_bytes: int) -> None:
        super().__init__()
        self.high_bytes = high_bytes
        self.reader: Connection | None = None
        self.paused = False

    def get_write_buffer_size(self) -> int:
        return len(self.sent)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        super().write(data)
        if self.reader is not None and not self.paused and len(self.sent) > self.high_bytes:
            self.paused = True
            self.reader.pause_writing()

    def read_all(self) -> bytes:
        taken, self.sent, was_paused, self.paused = bytes(self.sent), bytearray(), self.paused, False
        if was_paused and self.reader is not None:
            self.reader.resume_writing()
        return taken


@over_loopback
async def test_a_peer_that_does_not_read_is_not_answered_further(tmp_path: Path) -> None:
    """Goal: many pulls in one read fill no memory; once the peer reads, all are answered, in their order."""
    twin, maker = Twin(tmp_path, pick_port("127.0.0.1")), FrameMaker(1, odd=0.0)
    await twin.start(is_fast=True)
    sends = [maker.frame(310, letters(send_fields(TOPIC, 0)), b"x" * 4_000) for _ in range(40)]
    await twin.feed([*beginnings(), *sends])
    wire = SlowWire(300_000)
    connection = wire.reader = Connection(cast(Any, twin)._endpoint)
    connection.connection_made(wire)
    asked = range(1_000, 1_200)
    pulls = [maker.frame(11, pull_fields(TOPIC, 3), opaque=opaque) for opaque in asked]
    late = maker.frame(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0}, opaque=5)
    before = twin.broker.fast_paths[0].pulls_taken
    connection.data_received(b"".join([*pulls, late]))
    assert 300_000 < len(wire.sent) < 1_000_000
    taken, answers = twin.broker.fast_paths[0].pulls_taken - before, b""
    assert 0 < taken < 20
    while piece := wire.read_all():
        answers += piece
    opaques = [FrameDecoder().feed(answer)[0].opaque for answer in cut(answers)]
    assert opaques == [*asked, 5]
    assert twin.broker.fast_paths[0].pulls_taken - before >= len(asked) - 1  # the first has no route yet
    connection.connection_lost(None)
    await twin.stop()


@needs_compiled
@pytest.mark.slow
def test_the_other_form_of_the_kernel_agrees() -> None:
    """Goal: the same tests with whichever form this run does not use."""
    import rocketq.kernel  # noqa: PLC0415

    form = "interpreted" if rocketq.kernel.compiled else "compiled"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", __file__, "-k", "not the_other_form"],
        env={**os.environ, "ROCKETQ_KERNEL": form},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stdout[-3000:]
