"""Our client next to what a user would pick instead: rates, and above all CPU of the client per message.

    python -m bench.client             all rows, five rounds
    python -m bench.client --smoke     ours only, a moment, no bars: does it still run?

Ours, the package `rocketmq` 0.4.4 (a C++ library with a ctypes layer) and Apache's Java client 4.9.7 use one `rocketq`
broker. confluent-kafka and aiokafka use Kafka (from Maven), nats-py a nats-server and redis-py a redis-server on the
PATH; a client or server that cannot be had is left out, and the notes have the reason. Each run is a process of its
own; clients take turns in every round, medians count.

A bar is the goal of issue 23 scaled to this machine: goal / the peer's figure there * the peer's figure of this run.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tests.interop.cache import Unavailable
from tests.interop.client_programs import cpp
from tests.interop.release import obtain

from bench.bars import Bar, save
from bench.load.folders import run_folder
from bench.load.generator import Load, run
from bench.load.peers import Ours, make_topics
from bench.spark_kafka import KafkaBroker

HERE = Path(__file__).parent / "sdk"
DRAINED = 200_000
RUN_SECONDS_MAX = 180
SERVER_SECONDS_MAX = 20
MODULES = {"aiokafka": "aiokafka", "confluent": "confluent_kafka", "nats": "nats", "redis": "redis"}


@dataclass(frozen=True, slots=True)
class Goal:
    """CPU us per message in issue 23: ours to reach, and what the best peer took there."""

    ours_us: float
    peer: str
    peer_us: float


@dataclass(frozen=True, slots=True)
class Row:
    """A load: mode, number and amount of our_load.py and peer_load.py, and who runs it."""

    name: str
    mode: str
    number: int
    amount: float
    goal: Goal | None
    peers: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def drains(self) -> bool:
        return self.mode in ("consume", "iterate", "poll", "batches")

    def peer_mode(self) -> str:
        """Other clients have no listeners and no batches: they are drained message by message, or in lists."""
        return {"consume": "iterate" if self.amount == 1 else "poll", "batches": "poll"}.get(self.mode, self.mode)


def rows(seconds: float, drained: int) -> list[Row]:
    kafka = ("aiokafka", "confluent")
    return [
        Row("one await after the other", "send", 1, seconds, Goal(45, "redis", 102), ("redis", "nats", "aiokafka")),
        Row("100 tasks", "send", 100, seconds, Goal(8, "aiokafka", 10.9), ("aiokafka",)),
        Row("gather of 1,000", "gather", 1_000, seconds, Goal(8, "aiokafka", 20.6), ("aiokafka",)),
        Row("gather of 1,000, no batches", "gather", 1_000, seconds, None, (), ("single",)),
        Row("send_nowait, a future each", "nowait", 1_000, seconds, Goal(4, "aiokafka", 8.7), ("aiokafka",)),
        Row("send_nowait, a callback each", "callback", 1_000, seconds, Goal(1.5, "confluent", 1.9), ("confluent",)),
        Row("send_many", "many", 5_000, seconds, Goal(0.8, "confluent", 1.4), ("confluent",)),
        Row("without await, 1 thread", "sync", 1, seconds, Goal(25, "redis", 44), ("redis", "confluent")),
        Row("without await, 16 threads", "sync", 16, seconds, Goal(30, "redis", 52), ("redis", "confluent")),
        Row("backlog, async for", "iterate", drained, 1, Goal(2.5, "aiokafka", 5.7), kafka),
        Row("backlog, listener", "consume", drained, 1, Goal(3.0, "aiokafka", 5.7), kafka),
        Row("backlog, listener of 500", "consume", drained, 500, None, kafka),
        Row("backlog, poll", "poll", drained, 500, Goal(0.9, "aiokafka", 1.5), kafka),
        Row("backlog, batches", "batches", drained, 500, Goal(0.9, "aiokafka", 1.5), kafka),
    ]


Measured = dict[str, float]


@dataclass(frozen=True, slots=True)
class Client:
    """How a client's program is started, with the address of its server."""

    name: str
    command: tuple[str, ...]
    addr: str

    def run(self, mode: str, topic: str, number: int, amount: float, extra: tuple[str, ...] = ()) -> Measured:
        shown_amount = str(int(amount)) if amount == int(amount) else str(amount)
        words = [*self.command, mode, self.addr, topic, str(number), shown_amount, *extra]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=RUN_SECONDS_MAX)
        if done.returncode != 0 or not done.stdout.strip():
            raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-1500:]}")
        found: Measured = json.loads(done.stdout.strip().splitlines()[-1])
        return found | {"per_second": found["count"] / found["seconds"]}


def ours(addr: str) -> Client:
    return Client("ours", (sys.executable, "-m", "bench.sdk.our_load"), addr)


def native_clients(work: Path, addr: str, notes: list[str]) -> list[Client]:
    """The C++ binding and Java's client, for their rates."""
    found = []
    try:
        found.append(Client("cpp", (*cpp().command(work)[:1], str(HERE / "cpp_load.py")), addr))
    except Unavailable as reason:
        notes.append(f"the C++ client is left out: {reason}")
    try:
        found.append(Client("java", tuple(_java(work)), addr))
    except Unavailable as reason:
        notes.append(f"the Java client is left out: {reason}")
    return found


def _java(work: Path) -> list[str]:
    release = obtain("4.9.7")
    classes = work / "classes"
    command = ["javac", "-nowarn", "-Xlint:none", "-proc:none", "-cp", f"{release.jars}/*", "-d", str(classes)]
    subprocess.run([*command, str(HERE / "ClientLoad.java")], check=True, capture_output=True)
    slow = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    words = [word for word in release.java(heap_mb=1024, home=work) if word not in slow]
    return [*words[:-1], f"{classes}:{release.jars}/*", "ClientLoad"]


def peer_clients(servers: ExitStack, work: Path, notes: list[str]) -> dict[str, Client]:
    """Clients of other systems whose package is installed and whose server could be started."""
    addrs: dict[str, str] = {}
    present = {name for name, module in MODULES.items() if find_spec(module) is not None}
    for name in sorted(MODULES.keys() - present):
        notes.append(f"{name} is left out: the package {MODULES[name]} is not installed")
    if present & {"aiokafka", "confluent"}:
        try:
            kafka = servers.enter_context(KafkaBroker(partitions=8))
            addrs["aiokafka"] = addrs["confluent"] = kafka.addr
        except (Unavailable, OSError, RuntimeError) as reason:
            notes.append(f"Kafka's clients are left out: {reason}")
    for name, program, words in (
        ("redis", "redis-server", ["--appendonly", "yes", "--dir", str(work), "--bind", "127.0.0.1", "--port"]),
        ("nats", "nats-server", ["-js", "-sd", str(work / "nats"), "-a", "127.0.0.1", "-p"]),
    ):
        if name not in present:
            continue
        if (path := shutil.which(program)) is None:
            notes.append(f"{name} is left out: {program} is not on the PATH")
            continue
        addrs[name] = servers.enter_context(_server([path, *words]))
    command = (sys.executable, "-m", "bench.sdk.peer_load")
    return {name: Client(name, (*command, name), addr) for name, addr in addrs.items() if name in present}


@contextmanager
def _server(words: list[str]) -> Iterator[str]:
    """A server that takes its port as the last word."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    with subprocess.Popen([*words, str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            deadline_s = time.monotonic() + SERVER_SECONDS_MAX
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > deadline_s or process.poll() is not None:
                        raise
                    time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()


def measure(seconds: float, drained: int, rounds: int, notes: list[str], *, only_ours: bool) -> dict[str, Measured]:
    """Medians by `row` and `row, client`."""
    taken: dict[str, list[Measured]] = {}
    with ExitStack() as servers:
        work = Path(servers.enter_context(tempfile.TemporaryDirectory(prefix="rocketq-bench-")))
        broker = servers.enter_context(Ours({}))
        mine = ours(broker.name_server)
        peers = {} if only_ours else peer_clients(servers, work, notes)
        natives = [] if only_ours else native_clients(work, broker.name_server, notes)
        make_topics(broker, ["ClientSends", "ClientDrained"], 8)
        stored = 0
        while stored < drained:
            fill = Load(body=128, batch=32, depth=4, topic="ClientDrained", seconds=0.3, warm_up=0)
            stored += run(fill, ports=broker.ports, pids=broker.pids).messages
        for name in ("aiokafka", "confluent"):
            if name in peers and "confluent" in peers:
                peers["confluent"].run("many", "ClientDrained", drained, 0.1)
                break
        for number in range(rounds):
            for row in rows(seconds, drained):
                topic = "ClientDrained" if row.drains else "ClientSends"
                found = mine.run(row.mode, topic, row.number, row.amount, row.extra)
                taken.setdefault(row.name, []).append(found)
                for peer in (peers[name] for name in row.peers if name in peers):
                    found = peer.run(row.peer_mode(), topic, row.number, row.amount)
                    taken.setdefault(f"{row.name}, {peer.name}", []).append(found)
            for client in natives:
                found = client.run("send", "ClientSends", 100, seconds)
                taken.setdefault(f"100 threads, {client.name}", []).append(found)
                found = client.run("consume", "ClientDrained", drained, 8 if client.name == "cpp" else 1)
                taken.setdefault(f"backlog, {client.name}", []).append(found)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return {name: _medians(found) for name, found in taken.items()}


def _medians(found: list[Measured]) -> Measured:
    return {key: statistics.median(one[key] for one in found) for key in found[0]}


def judge(figures: dict[str, Measured]) -> list[Bar]:
    bars = []
    for row in rows(1, 1):
        peer = figures.get(f"{row.name}, {row.goal.peer}") if row.goal is not None else None
        if row.goal is not None and peer is not None and row.name in figures:
            wanted = row.goal.ours_us / row.goal.peer_us * peer["cpu_us"]
            bars.append(Bar(f"{row.name}, CPU us", figures[row.name]["cpu_us"], wanted, at_most=True))
    for name, row_name, other, wanted in (
        ("100 tasks against the C++ binding's threads", "100 tasks", "100 threads, cpp", 3.0),
        ("100 tasks against the Java client's threads", "100 tasks", "100 threads, java", 1.0),
        ("a listener against the C++ binding's", "backlog, listener", "backlog, cpp", 20.0),
    ):
        if row_name in figures and other in figures:
            bars.append(Bar(name, figures[row_name]["per_second"] / figures[other]["per_second"], wanted))
    return bars


def line(name: str, found: Measured) -> str:
    """One row of the table."""
    cpu = f"{found['cpu_us']:10.2f} us" if "cpu_us" in found else " " * 13
    latency = f"  p50 {found['p50_us']:.0f} us, p99 {found['p99_us']:.0f} us" if "p50_us" in found else ""
    return f"{name:44}{found['per_second']:12,.0f} /s{cpu}{latency}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="ours only, tiny, no bars")
    parser.add_argument("--ours", action="store_true", help="ours only, no bars")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    notes: list[str] = []
    if given.smoke:
        print(json.dumps(measure(0.2, 2_000, 1, notes, only_ours=True), indent=1))
        return
    figures = measure(given.seconds, DRAINED, given.rounds, notes, only_ours=given.ours)
    print(f"{'':44}{'messages':>15}{'CPU each':>13}")
    print("\n".join(line(name, found) for name, found in figures.items()))
    bars = judge(figures)
    print("\n".join([*map(str, bars), *notes]))
    if given.ours:
        return
    judged = [{"name": bar.name, "measured": bar.measured, "wanted": bar.wanted, "held": bar.held} for bar in bars]
    print(f"saved as {save('client', {'figures': figures, 'bars': judged, 'notes': notes})}")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
