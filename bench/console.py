"""What the web console costs and how fast it answers, with large tables behind it.

python -m bench.console              10,000 topics, 2,000 groups, 16,000 committed queues, 1,000,000 messages
python -m bench.console --smoke      a few of each: does it still run?

NameServer, broker and console are processes of their own; requests come from this one. Times are medians of rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import statistics
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from bench.bars import Bar, save
from bench.load.folders import run_folder
from bench.load.served import TOPIC, Served, Size, fill, served
from rocketq.model import NewMessage
from rocketq.store import Store, StoreConfig

STORE = {"mappedFileSizeConsumeQueue": "6000000", "mappedFileSizeCommitLog": str(256 << 20)}
BIG = f"{TOPIC}0"
FIRST_LOAD_FILES = ("index.html", "app.css", "main.js", "dom.js", "i18n.js", "api.js", "change.js", "chart.js")
FIRST_LOAD_PAGES = ("pages/overview.js", "pages/parts.js")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Milliseconds unless the name says otherwise."""

    start_s: float
    topics_cold: float
    topics_warm: float
    topics_filter: float
    groups_warm: float
    searched_per_s: float
    search_memory_mib: float
    memory_mib: float
    live_p99: float
    live_cpu_share: float
    idle_broker_cpu_share: float
    watched_broker_cpu_share: float
    first_load_kib: float


def memory_mib(process: Served) -> float:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1024


class Api:
    """Requests without a browser; bodies compressed as a browser asks for them."""

    def __init__(self, url: str) -> None:
        self._root = f"{url}api/v1/clusters/default"

    def get(self, path: str) -> Any:
        request = urllib.request.Request(f"{self._root}{path}", headers={"accept-encoding": "gzip"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            body = answer.read()
            return json.loads(gzip.decompress(body) if answer.headers["content-encoding"] == "gzip" else body)

    def search(self, path: str) -> tuple[int, float]:
        """Offsets looked at, and seconds."""
        began = time.perf_counter()
        looked = 0
        with urllib.request.urlopen(f"{self._root}{path}", timeout=600) as answer:
            for line in answer:
                looked = json.loads(line).get("progress", {}).get("looked_at", looked)
        return looked, time.perf_counter() - began

    def median_ms(self, path: str, rounds: int = 7) -> float:
        return statistics.median(_timed_ms(lambda: self.get(path)) for _ in range(rounds))


def _timed_ms(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1_000


async def live(url: str, console: Served, clients: int, seconds: float) -> tuple[float, float]:
    """The 99th percentile of the time from the first to the last client of each note, and the share of a core."""
    address = url.replace("http://", "ws://") + "api/v1/live"
    arrivals: dict[int, list[float]] = {}

    async def watch() -> None:
        async with connect(address, origin=url.rstrip("/"), proxy=None) as socket:  # type: ignore[arg-type]
            await socket.send(json.dumps({"cluster": "default"}))
            while True:
                note = json.loads(await socket.recv())
                if note["asOf"] is not None:
                    arrivals.setdefault(note["asOf"], []).append(time.perf_counter())

    tasks = [asyncio.create_task(watch()) for _ in range(clients)]
    await asyncio.sleep(1)
    began, used = time.perf_counter(), console.cpu_s()
    await asyncio.sleep(seconds)
    share = (console.cpu_s() - used) / (time.perf_counter() - began)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    spans = [(max(times) - min(times)) * 1_000 for times in list(arrivals.values())[1:] if len(times) >= clients // 2]
    return (max(spans) if spans else 0.0), share


def cpu_share(process: Served, seconds: float) -> float:
    used, began = process.cpu_s(), time.perf_counter()
    time.sleep(seconds)
    return (process.cpu_s() - used) / (time.perf_counter() - began)


def first_load_kib() -> float:
    from rocketq.console.app import STATIC  # noqa: PLC0415 - FastAPI is an extra

    files = [STATIC / name for name in (*FIRST_LOAD_FILES, *FIRST_LOAD_PAGES)]
    return sum(len(gzip.compress(file.read_bytes(), 9)) for file in files) / 1024


def run(folder: Path, size: Size, messages: int, clients: int, seconds: float, idle_s: float) -> Found:
    root = folder / "store"
    fill(root, size, STORE)
    with Store.open(StoreConfig(root=root).with_java(STORE)) as store:
        for number in range(messages):
            store.append(NewMessage(topic=BIG, queue_id=number % 8, body=b"x" * 100), wait=False)
    settings = [part for key, value in STORE.items() for part in ("--set", f"{key}={value}")]
    with ExitStack() as stack:
        names = stack.enter_context(served(folder, "namesrv"))
        broker = stack.enter_context(served(folder, "broker", "-n", names.addr, "--data-dir", str(root), *settings))
        time.sleep(2)  # it registers
        without = cpu_share(broker, seconds)
        began = time.perf_counter()
        data = ("--data", str(folder / "console"))
        console = stack.enter_context(served(folder, "console", "-n", names.addr, *data))
        start_s = time.perf_counter() - began
        api = Api(console.addr)
        cold = _timed_ms(lambda: api.get("/topics?n=100"))
        warm, filtered = api.median_ms("/topics?n=100"), api.median_ms(f"/topics?n=100&q={TOPIC}77")
        groups = api.median_ms("/groups?n=100")
        resting = memory_mib(console)
        looked, took_s = api.search(f"/messages:search?topic={BIG}&text=nothing")
        grown = memory_mib(console) - resting
        spread, share = asyncio.run(live(console.addr, console, clients, seconds))
        watched = cpu_share(broker, seconds) - without
        time.sleep(idle_s)  # nobody looks any more
        idle = cpu_share(broker, max(seconds, idle_s)) - without
        return Found(
            start_s=start_s,
            topics_cold=cold,
            topics_warm=warm,
            topics_filter=filtered,
            groups_warm=groups,
            searched_per_s=looked / took_s,
            search_memory_mib=grown,
            memory_mib=resting,
            live_p99=spread,
            live_cpu_share=share,
            idle_broker_cpu_share=max(0.0, idle),
            watched_broker_cpu_share=max(0.0, watched),
            first_load_kib=first_load_kib(),
        )


def judge(found: Found) -> list[Bar]:
    """The limits of the console."""
    return [
        Bar("seconds until the console serves", found.start_s, 2.0, at_most=True),
        Bar("topics page, first request (ms)", found.topics_cold, 1_500, at_most=True),
        Bar("topics page (ms)", found.topics_warm, 400, at_most=True),
        Bar("topics page with a filter (ms)", found.topics_filter, 150, at_most=True),
        Bar("groups page (ms)", found.groups_warm, 400, at_most=True),
        Bar("messages looked at per second", found.searched_per_s, 20_000),
        Bar("memory of a search (MiB)", found.search_memory_mib, 64, at_most=True),
        Bar("memory of the console (MiB)", found.memory_mib, 90, at_most=True),
        Bar("live note, first to last client (ms)", found.live_p99, 250, at_most=True),
        Bar("CPU of the broker while nobody looks (share of a core)", found.idle_broker_cpu_share, 0.01, at_most=True),
        Bar("first load, files (KiB)", found.first_load_kib, 100, at_most=True),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="small tables, no bars")
    smoke = parser.parse_args().smoke
    if smoke:
        with run_folder() as folder:
            found = run(folder, Size(topics=20, groups=5), 2_000, 3, 2.0, 1.0)
        print(json.dumps(asdict(found), indent=1))
        return 0
    with run_folder() as folder:
        found = run(folder, Size(), 1_000_000, 50, 15.0, 35.0)
    bars = judge(found)
    for bar in bars:
        print(bar)
    save("console", {"figures": asdict(found)})
    return 0 if all(bar.held for bar in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
