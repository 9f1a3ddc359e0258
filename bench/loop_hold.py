"""How long large administrative requests hold up everybody else, on a broker with large tables.

python -m bench.loop_hold              10,000 topics, 2,000 groups, 16,000 committed queues
python -m bench.loop_hold --smoke      a few of each: does it still run?

A prober requests the end of a queue every millisecond on a separate connection. For each request, the table shows

* hold: the most CPU that the server's event loop used while one probe waited,
* wait: the longest that a probe waited (on a machine with other work the row without any request shows waits, too),
* CPU: what the server used for one request.

Then the latency of a producer with and without request 317 once a second. Holds and waits are medians of rounds.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import rocketq.kernel
from bench.bars import Bar, save
from bench.load.folders import run_folder
from bench.load.generator import Load, Measured, run
from bench.load.served import TOPIC, Served, Size, fill, served
from rocketq.protocol.bodies.clients import Heartbeat, ProducerData
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.frame import encode_command

HOLD_MS_MAX = 10.0
PRODUCER_RATIO_MAX = 1.15
PROBE_S = 0.001
ROUNDS = 5
STORE = {"mappedFileSizeConsumeQueue": "20000", "mappedFileSizeCommitLog": str(256 << 20)}
JAVA_533 = 479
BIG_TOPIC = "BenchmarkTest"
"""Every broker has it, with 1,024 queues."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """What a request does to others."""

    hold_ms: float
    wait_ms: float
    worst_ms: float
    cpu_ms: float
    answer_kib: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Latency of sends, alone and while 317 is asked for once a second."""

    p50_us: float
    p99_us: float
    p50_us_asked: float
    p99_us_asked: float

    @property
    def ratio(self) -> float:
        return self.p99_us_asked / self.p99_us if self.p99_us else 0.0


Ask = Callable[[], int]
"""Sends a request, returns the length of its answer."""


class Asker:
    """One connection; blocks until an answer has come."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes) -> int:
        self._socket.sendall(request)
        left = size = int.from_bytes(self._socket.recv(4, socket.MSG_WAITALL), "big")
        while left:
            got = self._socket.recv(min(left, 1 << 20))
            if not got:
                raise ConnectionError("the server closed the connection")
            left -= len(got)
        return size

    def close(self) -> None:
        self._socket.close()


def request(code: RequestCode, body: bytes = b"", **fields: object) -> bytes:
    ext_fields = {name: str(item) for name, item in fields.items()}
    return encode_command(Command(code=code, version=JAVA_533, ext_fields=ext_fields, body=body))


BROKER_REQUESTS: dict[str, tuple[bytes, ...]] = {
    "nothing": (),
    "21 all topics": (request(RequestCode.GET_ALL_TOPIC_CONFIG),),
    "28 runtime info": (request(RequestCode.GET_BROKER_RUNTIME_INFO),),
    "43 all offsets": (request(RequestCode.GET_ALL_CONSUMER_OFFSET),),
    "201 all groups": (request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),),
    "202 stats of 1,024 queues": (request(RequestCode.GET_TOPIC_STATS_INFO, topic=BIG_TOPIC),),
    "208 progress of a group": (request(RequestCode.GET_CONSUME_STATS, consumerGroup="group-0"),),
    "222 reset of 1,024 queues": (
        request(
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, topic=BIG_TOPIC, group="group-0", timestamp=1, isForce="true"
        ),
    ),
    "300 groups of a topic": (request(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic=f"{TOPIC}0"),),
    "303 times of 1,024 queues": (request(RequestCode.QUERY_CONSUME_TIME_SPAN, topic=BIG_TOPIC, group="group-0"),),
    "317 progress of all groups": (request(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"),),
    "317, four at once": (request(RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"),) * 4,
    "328 all producers": (request(RequestCode.GET_ALL_PRODUCER_INFO),),
    "17 a topic is made": (
        request(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            topic="Made",
            readQueueNums=1,
            writeQueueNums=1,
            perm=6,
            topicFilterType="SINGLE_TAG",
        ),
    ),
}
NAME_SERVER_REQUESTS: dict[str, tuple[bytes, ...]] = {
    "105 a route": (request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=f"{TOPIC}0"),),
    "205 no writes": (request(RequestCode.WIPE_WRITE_PERM_OF_BROKER, brokerName="bench"),),
    "206 all topics": (request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),),
    "224 topics of a cluster": (request(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="DefaultCluster"),),
    "311 topics of units": (request(RequestCode.GET_UNIT_TOPIC_LIST),),
}


class Prober:
    """Sends a probe every millisecond until it is stopped; keeps the longest wait and the longest hold."""

    def __init__(self, server: Served, probe: bytes) -> None:
        self._server = server
        self._asker = Asker(server.port)
        self._probe = probe
        self._stopping = threading.Event()
        self.wait_s = 0.0
        self.hold_s = 0.0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Prober:
        self._asker.ask(self._probe)
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._asker.close()

    def _run(self) -> None:
        while not self._stopping.wait(PROBE_S):
            cpu_s, start_s = self._server.loop_cpu_s(), time.perf_counter()
            self._asker.ask(self._probe)
            self.wait_s = max(self.wait_s, time.perf_counter() - start_s)
            self.hold_s = max(self.hold_s, self._server.loop_cpu_s() - cpu_s)


def measure_hold(server: Served, probe: bytes, requests: tuple[bytes, ...], rounds: int, rest_s: float) -> Hold:
    askers = [Asker(server.port) for _ in requests]
    sizes = [asker.ask(each) for asker, each in zip(askers, requests, strict=True)]  # so that files are mapped
    time.sleep(rest_s)
    began = server.cpu_s()
    for asker, each in zip(askers, requests, strict=True):
        asker.ask(each)
    cpu_ms = (server.cpu_s() - began) * 1e3
    probers = []
    for _ in range(rounds):
        with Prober(server, probe) as prober:
            threads = [
                threading.Thread(target=asker.ask, args=(each,)) for asker, each in zip(askers, requests, strict=True)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            time.sleep(rest_s)  # what a request leaves to be done afterwards counts too
        probers.append(prober)
    for asker in askers:
        asker.close()
    return hold_of(probers, cpu_ms, sum(sizes) / 1024)


def hold_of(probers: list[Prober], cpu_ms: float, answer_kib: float) -> Hold:
    return Hold(
        hold_ms=statistics.median(prober.hold_s for prober in probers) * 1e3,
        wait_ms=statistics.median(prober.wait_s for prober in probers) * 1e3,
        worst_ms=max(prober.wait_s for prober in probers) * 1e3,
        cpu_ms=cpu_ms,
        answer_kib=answer_kib,
    )


@contextmanager
def asked_regularly(server: Served, asked: bytes, every_s: float) -> Iterator[None]:
    asker, stopping = Asker(server.port), threading.Event()

    def repeat() -> None:
        while not stopping.wait(every_s):
            asker.ask(asked)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
        asker.close()


def measure_producer(server: Served, load: Load, rounds: int, every_s: float) -> Producer:
    alone, asked = list[Measured](), list[Measured]()
    progress = BROKER_REQUESTS["317 progress of all groups"][0]
    for _ in range(rounds):
        alone.append(run(load, ports=[server.port], pids=[server.pid]))
        with asked_regularly(server, progress, every_s):
            asked.append(run(load, ports=[server.port], pids=[server.pid]))
    return Producer(
        p50_us=statistics.median(each.p50_us for each in alone),
        p99_us=statistics.median(each.p99_us for each in alone),
        p50_us_asked=statistics.median(each.p50_us for each in asked),
        p99_us_asked=statistics.median(each.p99_us for each in asked),
    )


def measure(
    size: Size, *, rounds: int = ROUNDS, rest_s: float = 0.3, seconds: float = 5.0
) -> tuple[dict[str, Hold], dict[str, Producer]]:
    root = Path(tempfile.mkdtemp(prefix="rocketq-hold-"))
    fill(root / "data", size, STORE)
    changes = [word for key, item in STORE.items() for word in ("--set", f"{key}={item}")]
    with ExitStack() as stack:
        (root / "namesrv.conf").write_text(f"kvConfigPath={root / 'kvConfig.json'}\n")
        names = stack.enter_context(served(root, "namesrv", "-c", str(root / "namesrv.conf")))
        words = ("broker", "-n", names.addr, "--data-dir", str(root / "data"), "--set", "brokerName=bench", *changes)
        broker = stack.enter_context(served(root, *words))
        crowd = Asker(broker.port)  # stays connected: its client is in all these groups
        groups = tuple(ProducerData(group=f"producers-{number}") for number in range(size.groups))
        crowd.ask(request(RequestCode.HEART_BEAT, Heartbeat(client_id="crowd", producers=groups).encode()))
        probe = request(RequestCode.GET_MAX_OFFSET, topic=f"{TOPIC}0", queueId=0)
        holds = {name: measure_hold(broker, probe, each, rounds, rest_s) for name, each in BROKER_REQUESTS.items()}
        route = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=f"{TOPIC}0")
        for name, each in NAME_SERVER_REQUESTS.items():
            holds[f"NameServer {name}"] = measure_hold(names, route, each, rounds, rest_s)
        made = BROKER_REQUESTS["17 a topic is made"]
        holds["NameServer 103 a broker registers"] = measure_register(names, broker, route, made, rounds, rest_s)
        crowd.close()
        producers = {
            "8 x 128": measure_producer(broker, Load(topic=f"{TOPIC}0", seconds=seconds), rounds, 1.0),
            "1 x 1": measure_producer(
                broker, Load(topic=f"{TOPIC}0", connections=1, depth=1, seconds=seconds), rounds, 1.0
            ),
        }
    return holds, producers


def measure_register(
    names: Served, broker: Served, route: bytes, made: tuple[bytes, ...], rounds: int, rest_s: float
) -> Hold:
    """A topic that is made at the broker makes it register all it has."""
    probers, asker, began = [], Asker(broker.port), names.cpu_s()
    for _ in range(rounds):
        with Prober(names, route) as prober:
            asker.ask(made[0])
            time.sleep(rest_s)
        probers.append(prober)
    asker.close()
    return hold_of(probers, (names.cpu_s() - began) * 1e3 / rounds, 0.0)


def judge(holds: dict[str, Hold], producers: dict[str, Producer]) -> list[Bar]:
    longest = max(holds, key=lambda name: holds[name].hold_ms)
    return [
        Bar(f"longest hold of the event loop, ms ({longest})", holds[longest].hold_ms, HOLD_MS_MAX, at_most=True),
        Bar(
            "p99 of sends (8 x 128) with 317, of without", producers["8 x 128"].ratio, PRODUCER_RATIO_MAX, at_most=True
        ),
    ]


def table(holds: dict[str, Hold], producers: dict[str, Producer]) -> str:
    lines = [f"{'':36}{'hold ms':>10}{'wait ms':>10}{'worst ms':>10}{'CPU ms':>10}{'KiB':>10}"]
    for name, hold in holds.items():
        waits = f"{hold.hold_ms:10.1f}{hold.wait_ms:10.1f}{hold.worst_ms:10.1f}"
        lines.append(f"{name:36}{waits}{hold.cpu_ms:10.1f}{hold.answer_kib:10.0f}")
    lines.append(f"{'sends':36}{'p50 us':>10}{'p99 us':>10}{'with 317':>10}{'':>10}{'p99':>6}")
    for name, each in producers.items():
        figures = f"{each.p50_us:10.0f}{each.p99_us:10.0f}{each.p50_us_asked:10.0f}{each.p99_us_asked:10.0f}"
        lines.append(f"{name:36}{figures}{each.ratio:6.2f}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true")
    if parser.parse_args().smoke:
        holds, producers = measure(Size(20, 4), rounds=1, rest_s=0.01, seconds=0.3)
        assert all(hold.answer_kib > 0 for name, hold in holds.items() if name[0].isdigit())
        print(json.dumps({"holds": sorted(holds), "producers": sorted(producers)}))
        return
    if not rocketq.kernel.compiled:
        sys.exit(
            "the kernel is not compiled here (no C compiler was found at setup): the bars are for the compiled one"
        )
    holds, producers = measure(Size())
    print(table(holds, producers))
    bars = judge(holds, producers)
    for bar in bars:
        print(bar)
    figures = {
        "holds": {name: asdict(hold) for name, hold in holds.items()},
        "producers": {name: asdict(each) for name, each in producers.items()},
    }
    print(f"saved as {save('loop_hold', figures)}")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
