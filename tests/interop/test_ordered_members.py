"""Members of Apache's clients that consume in order from our broker, two of a group, one of them killed at work."""

from __future__ import annotations

import itertools
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketq.client import Admin, Message, Producer

from . import processes
from .cache import Unavailable
from .client_programs import go
from .our_cluster import OurCluster
from .release import obtain

pytestmark = pytest.mark.interop

TOPIC = "InOrder"
QUEUES = 4
LOCK_LIFE_MS = 35_000
"""Instead of a minute. Clients trust a lock for 30 s, so nothing shorter would be safe."""
AT_FIRST, LATER = 400, 80
START_SECONDS_MAX = 90
TAKE_OVER_SECONDS_MAX = 120


@dataclass(frozen=True, slots=True)
class Call:
    """One message in a listener. Without an end the member was killed in it."""

    member: str
    queue_id: int
    offset: int
    body: str
    began_ms: int
    ended_ms: int | None


class Member:
    """A consumer in a process of its own; its calls as it tells them."""

    def __init__(self, name: str, command: list[str], home: Path) -> None:
        home.mkdir()
        self.name = name
        self.killed_ms: int | None = None
        self._began: dict[tuple[int, int, str], int] = {}
        self._ended: list[Call] = []
        self._log = (home / "member.log").open("wb")
        self._process = processes.start(command, log=self._log, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=home)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def calls(self) -> list[Call]:
        open_calls = [Call(self.name, *key, began_ms, None) for key, began_ms in list(self._began.items())]
        return [*self._ended, *open_calls]

    def bodies(self) -> set[str]:
        return {call.body for call in list(self._ended)}

    def queue_ids(self, prefix: str = "") -> set[int]:
        """Where messages came from whose body begins so."""
        return {call.queue_id for call in self.calls() if call.body.startswith(prefix)}

    @property
    def is_busy(self) -> bool:
        return bool(self._began)

    def kill(self) -> None:
        """Without any goodbye; what it was doing then stays open."""
        if self.killed_ms is None:
            self._process.kill()
            self._process.wait()
            self.killed_ms = int(time.time() * 1000)
            self._reader.join(10)
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                match line.decode().split():
                    case ["began", queue_id, offset, body, time_ms]:
                        self._began[int(queue_id), int(offset), body] = int(time_ms)
                    case ["ended", queue_id, offset, body, time_ms]:
                        key = (int(queue_id), int(offset), body)
                        self._ended.append(Call(self.name, *key, self._began.pop(key), int(time_ms)))


def java_member(version: str) -> Callable[[str, str, str, Path], list[str]]:
    release = obtain(version)
    return lambda names, topic, group, home: [*release.java(heap_mb=96, home=home), "Ordered", names, topic, group]


def go_member() -> Callable[[str, str, str, Path], list[str]]:
    program = go("ordered")
    return lambda names, topic, group, home: [
        "env",
        "ROCKETMQ_GO_LOG_LEVEL=error",
        *program.command(home),
        names,
        topic,
        group,
    ]


MAKERS = {"java-4.9.7": lambda: java_member("4.9.7"), "java-5.3.3": lambda: java_member("5.3.3"), "go-2.1.2": go_member}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OurCluster]:
    made = OurCluster(tmp_path)
    life = ["--set", f"rebalanceLockMaxLiveTime={LOCK_LIFE_MS}"]
    try:
        made.start("up", "--data-dir", str(tmp_path / "data"), "--namesrv-port", "0", "--broker-port", "0", *life)
        yield made
        made.stop()
    finally:
        made.kill()


@pytest.mark.parametrize("client", MAKERS)
def test_a_killed_member_is_followed_in_order(client: str, cluster: OurCluster, tmp_path: Path) -> None:
    """Goal: no two members in one queue at a time, each queue in order, nothing lost; what the dead one was busy with
    comes again."""
    try:
        command = MAKERS[client]()
    except Unavailable as reason:
        pytest.skip(str(reason))
    names, group = cluster.nameserver_addr, f"G-{client.replace('.', '-')}"
    with Admin(names) as admin:
        admin.topics.create(TOPIC, queues=QUEUES)
    members = [
        Member(name, command(names, TOPIC, group, tmp_path / name), tmp_path / name) for name in ("first", "second")
    ]
    survivor, victim = members
    try:
        with Producer("in-order", name_servers=names) as producer:
            sent = send_until_shared(producer, members)
            sent |= send(producer, "later", LATER)
            until(lambda: victim.is_busy, START_SECONDS_MAX, "the second member got nothing")
            victim.kill()
            sent |= send(producer, "last", LATER)
        until(
            lambda: sent <= survivor.bodies() | victim.bodies(),
            TAKE_OVER_SECONDS_MAX,
            lambda: f"{len(sent - survivor.bodies() - victim.bodies())} of {len(sent)} never came",
        )
    finally:
        for member in members:
            member.kill()
    calls = sorted([*survivor.calls(), *victim.calls()], key=lambda call: call.began_ms)
    assert clashes(calls, victim.killed_ms or 0) == []
    assert skipped(calls) == {}
    died_in = [call for call in victim.calls() if call.ended_ms is None]
    assert {call.body for call in died_in} <= survivor.bodies()
    assert died_in, "it was not killed at work"


def send(producer: Producer, name: str, count: int) -> set[str]:
    """To all queues in turn."""
    queues = producer.queues(TOPIC)
    for number in range(count):
        message = Message(topic=TOPIC, body=f"{name}-{number}".encode())
        producer.send(message, queue=queues[number % QUEUES], timeout_ms=10_000)
    return {f"{name}-{number}" for number in range(count)}


def send_until_shared(producer: Producer, members: list[Member]) -> set[str]:
    """What was sent until each member had got something of two queues and no more."""
    sent: set[str] = set()
    deadline_s = time.monotonic() + START_SECONDS_MAX
    for heap in range(1_000):
        sent |= send(producer, f"heap{heap}", 8)
        time.sleep(0.2)
        recent = [
            {call.queue_id for call in member.calls() if call.body.startswith(f"heap{heap}-")} for member in members
        ]
        if all(len(queue_ids) == QUEUES // 2 for queue_ids in recent) and not recent[0] & recent[1]:
            return sent | send(producer, "first", AT_FIRST)
        assert time.monotonic() < deadline_s, f"never shared: {[sorted(member.queue_ids()) for member in members]}"
    raise AssertionError("unreachable")


def until(true: Callable[[], bool], seconds: float, otherwise: str | Callable[[], str]) -> None:
    deadline_s = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline_s, otherwise if isinstance(otherwise, str) else otherwise()
        time.sleep(0.01)


def clashes(calls: list[Call], killed_ms: int) -> list[tuple[Call, Call]]:
    """Calls of two members that were in one queue at a time. A call that never ended lasted until its member's end."""
    found: list[tuple[Call, Call]] = []
    by_queue: dict[int, list[Call]] = defaultdict(list)
    for call in calls:
        by_queue[call.queue_id].append(call)
    for each in by_queue.values():
        for before, after in itertools.pairwise(each):
            ended_ms = killed_ms if before.ended_ms is None else before.ended_ms
            if before.member != after.member and after.began_ms < ended_ms:
                found.append((before, after))
    return found


def skipped(calls: list[Call]) -> dict[int, list[int]]:
    """Offsets that came before one below them: a repetition is none, a gap is."""
    found: dict[int, list[int]] = {}
    expected: dict[int, int] = defaultdict(int)
    for call in calls:
        if call.offset > expected[call.queue_id]:
            found.setdefault(call.queue_id, []).append(call.offset)
        expected[call.queue_id] = max(expected[call.queue_id], call.offset + 1)
    return found
