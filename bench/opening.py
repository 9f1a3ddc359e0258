"""How long a large store takes to open, and what memory that costs: with a recovery point, and by walking the log.

python -m bench.opening              10 GiB of log, 1,000 queues (needs the disk space)
python -m bench.opening --gib 1      less of it
python -m bench.opening --smoke      a megabyte: does it still run?
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.bars import Bar
from bench.load.folders import run_folder
from rocketq.kernel.appender import APPENDED, SEGMENT_FULL
from rocketq.protocol.properties import encode_properties
from rocketq.store import Store, StoreConfig

OPEN_SCRIPT = """
import json, sys, time
from pathlib import Path
from rocketq.store import Store, StoreConfig
config = StoreConfig(root=Path(sys.argv[1]), segment_bytes=int(sys.argv[2]), message_bytes_max=1 << 14)
began = time.perf_counter()
store = Store.open(config)
seconds = time.perf_counter() - began
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
anonymous_mib = int(status["RssAnon"].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "anonymous_mib": anonymous_mib, "from_point": store.report.from_point}))
store.close()
"""


def build(root: Path, log_bytes: int, queue_count: int, segment_bytes: int) -> int:
    """A store of 1 KiB messages spread over many queues; how many messages."""
    count = 0
    with Store.open(StoreConfig(root=root, segment_bytes=segment_bytes, message_bytes_max=1 << 14)) as store:
        appender, body, host = store.log.appender, bytes(range(256)) * 4, b"\x7f\0\0\1\0\0\x12\x34"
        queues = [store.queues.find_or_make(f"Topic{n // 8}", n % 8) for n in range(queue_count)]
        properties = [encode_properties({"UNIQ_KEY": f"{n:032X}", "TAGS": "TagA"}) for n in range(1000)]
        while store.log_end < log_bytes:
            for queue in queues:
                given = (queue.tail, body, properties[count % 1000], 0, 0, 1, host, 1_700_000_000_000, 0, 0)
                while (state := appender.append(*given)) != APPENDED:
                    store.writer.roll() if state == SEGMENT_FULL else queue.make_room(1)
                count += 1
        store.writer.last_record = appender.log_offset
        store.announcer.announce()
    return count


def open_once(root: Path, segment_bytes: int) -> dict[str, float]:
    command = [sys.executable, "-c", OPEN_SCRIPT, str(root), str(segment_bytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def run(log_bytes: int, queue_count: int, segment_bytes: int) -> list[Bar]:
    root = Path(tempfile.mkdtemp(prefix="rocketq-opening-"))
    try:
        began = time.perf_counter()
        count = build(root / "store", log_bytes, queue_count, segment_bytes)
        took_s = time.perf_counter() - began
        print(f"built: {count:,} messages, {log_bytes / (1 << 30):.2f} GiB, {queue_count} queues, {took_s:.0f} s")
        quick = open_once(root / "store", segment_bytes)
        assert quick["from_point"]
        (root / "store" / "recovery.rocketq").unlink()
        walked = open_once(root / "store", segment_bytes)
        print(f"opened with its recovery point: {quick['seconds']:.2f} s, {quick['anonymous_mib']:.0f} MiB anonymous")
        rate, walked_mib = log_bytes / walked["seconds"] / 1e6, walked["anonymous_mib"]
        print(f"opened by walking the log: {walked['seconds']:.2f} s, {rate:,.0f} MB/s, {walked_mib:.0f} MiB anonymous")
        return [
            Bar("seconds to open with a recovery point", quick["seconds"], 2.0, at_most=True),
            Bar("MiB of anonymous memory after opening", quick["anonymous_mib"], 100, at_most=True),
            Bar("MiB of anonymous memory after walking", walked["anonymous_mib"], 100, at_most=True),
        ]
    finally:
        shutil.rmtree(root)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=10.0)
    parser.add_argument("--queues", type=int, default=1_000)
    parser.add_argument("--smoke", action="store_true")
    given = parser.parse_args()
    if given.smoke:
        run(1 << 20, 10, 1 << 18)
        return
    bars = run(int(given.gib * (1 << 30)), given.queues, 1 << 30)
    for bar in bars:
        print(f"{'held  ' if bar.held else 'MISSED'}  {bar.name}: {bar.measured:.2f} (<= {bar.wanted:g})")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
