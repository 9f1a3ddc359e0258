"""The store alone, in one process: appends, reads of 32, recovery; compiled against interpreted in the same run.

    python -m bench.store            the figures and the bars
    python -m bench.store --smoke    a few hundred messages, no bars: does it still run?

Rounds of the two kernel forms take turns, so that noise hits both; medians count. CPU is that of the whole process,
background flushing included.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import rocketq.kernel
from bench.bars import Bar, save
from bench.load.folders import run_folder
from rocketq.kernel.appender import APPENDED, SEGMENT_FULL
from rocketq.model import NewMessage
from rocketq.protocol.properties import encode_properties
from rocketq.store import Store, StoreConfig

FORMS = ("compiled", "interpreted")
ROUNDS = 5


@dataclass(frozen=True)
class Figures:
    """One round of one kernel form."""

    append_128_us: float
    append_128_per_s: float
    append_1k_us: float
    append_1k_per_s: float
    api_append_128_us: float
    read_128_mb_s: float
    read_1k_mb_s: float
    read_1k_us_per_32: float
    recovery_mb_s: float
    recovery_s_per_gib: float


# One round, in a process of its own


def run_round(count: int) -> Figures:
    root = Path(tempfile.mkdtemp(prefix="rocketq-bench-"))
    try:
        return _measure(root, count)
    finally:
        shutil.rmtree(root)


def _measure(root: Path, count: int) -> Figures:
    config = StoreConfig(root=root / "store", segment_bytes=1 << 28, index_slots=500_000, index_units=2_000_000)
    with Store.open(config) as store:
        api_us = _append_through_api(store, count // 4)
        small_us, small_rate = _append_through_kernel(store, "Small", 128, count)
        large_us, large_rate = _append_through_kernel(store, "Large", 1024, count // 4)
        small_mb_s, _ = _read_all(store, "Small")
        large_mb_s, large_read_us = _read_all(store, "Large")
        log_bytes = store.log_end
    seconds = _recover(config)
    return Figures(
        append_128_us=small_us,
        append_128_per_s=small_rate,
        append_1k_us=large_us,
        append_1k_per_s=large_rate,
        api_append_128_us=api_us,
        read_128_mb_s=small_mb_s,
        read_1k_mb_s=large_mb_s,
        read_1k_us_per_32=large_read_us,
        recovery_mb_s=log_bytes / seconds / 1e6,
        recovery_s_per_gib=seconds * (1 << 30) / log_bytes,
    )


def _properties(number: int) -> bytes:
    return encode_properties({"UNIQ_KEY": f"{number:032X}", "KEYS": f"order-{number}", "TAGS": "TagA", "WAIT": "true"})


def _append_through_api(store: Store, count: int) -> float:
    """CPU microseconds of Store.append(NewMessage), the door for Python callers."""
    messages = [
        NewMessage(topic="Api", queue_id=n % 4, body=bytes(128), properties=_properties(n), born_ms=1)
        for n in range(1000)
    ]
    began = time.process_time()
    for n in range(count):
        store.append(messages[n % 1000])
    return (time.process_time() - began) / count * 1e6


def _append_through_kernel(store: Store, topic: str, size: int, count: int) -> tuple[float, float]:
    """CPU microseconds per append and appends per second at the door that a broker's data plane uses."""
    appender, body, born_host = store.log.appender, bytes(range(256)) * (size // 256 + 1), b"\x7f\0\0\1\0\0\x12\x34"
    body = body[:size]
    queues = [store.queues.find_or_make(topic, n) for n in range(4)]
    properties = [_properties(n) for n in range(1000)]
    began, began_cpu = time.perf_counter(), time.process_time()
    for n in range(count):
        queue = queues[n & 3]
        state = appender.append(queue.tail, body, properties[n % 1000], 0, 0, 1, born_host, 1_700_000_000_000, 0, 0)
        while state != APPENDED:
            store.writer.roll() if state == SEGMENT_FULL else queue.make_room(1)
            state = appender.append(queue.tail, body, properties[n % 1000], 0, 0, 1, born_host, 1_700_000_000_000, 0, 0)
    cpu, wall = time.process_time() - began_cpu, time.perf_counter() - began
    store.writer.last_record = appender.log_offset
    store.announcer.announce()
    return cpu / count * 1e6, count / wall


def _read_all(store: Store, topic: str) -> tuple[float, float]:
    """MB/s and microseconds per read of 32, hot, body CRCs checked; the second of two passes."""
    for _ in range(2):
        began, total, reads, offset = time.perf_counter(), 0, 0, 0
        while (found := store.read(topic, 0, offset)).count:
            total, reads, offset = total + len(found.records), reads + 1, found.next_offset
        wall = time.perf_counter() - began
    return total / wall / 1e6, wall / max(reads, 1) * 1e6


def _recover(config: StoreConfig) -> float:
    """Seconds of an opening that walks the whole log, CRCs checked, with queues compared and the index there."""
    (config.root / "recovery.rocketq").unlink()
    began = time.perf_counter()
    store = Store.open(config)
    seconds = time.perf_counter() - began
    assert not store.report.from_point
    store.close()
    return seconds


# All rounds


def run_form(form: str, count: int) -> Figures:
    command = [sys.executable, "-m", "bench.store", "--round", str(count)]
    done = subprocess.run(
        command, env={**os.environ, "ROCKETQ_KERNEL": form}, capture_output=True, text=True, check=True
    )
    return Figures(**json.loads(done.stdout.splitlines()[-1]))


def medians(rounds: list[Figures]) -> Figures:
    return Figures(**{name: statistics.median(asdict(each)[name] for each in rounds) for name in asdict(rounds[0])})


def judge(compiled: Figures, interpreted: Figures) -> list[Bar]:
    return [
        Bar("CPU us per 128 B append at the kernel's door, compiled", compiled.append_128_us, 1.0, at_most=True),
        Bar("times the interpreted append, same door", interpreted.append_128_us / compiled.append_128_us, 8.0),
        Bar("GB/s of hot reads (32 x 1 KiB)", compiled.read_1k_mb_s / 1000, 1.5),
        Bar("MB/s of recovery", compiled.recovery_mb_s, 500.0),
    ]


ROWS = [
    ("kernel append 128 B, CPU us", "append_128_us", 2),
    ("kernel append 128 B, per second", "append_128_per_s", 0),
    ("kernel append 1 KiB, CPU us", "append_1k_us", 2),
    ("kernel append 1 KiB, per second", "append_1k_per_s", 0),
    ("Store.append 128 B, CPU us", "api_append_128_us", 2),
    ("reads of 32 x 128 B, MB/s", "read_128_mb_s", 0),
    ("reads of 32 x 1 KiB, MB/s", "read_1k_mb_s", 0),
    ("one read of 32 x 1 KiB, us", "read_1k_us_per_32", 1),
    ("recovery, MB/s", "recovery_mb_s", 0),
    ("recovery, s per GiB", "recovery_s_per_gib", 2),
]


def table(compiled: Figures, interpreted: Figures) -> str:
    lines = [f"{'':32}{'compiled':>14}{'interpreted':>14}{'ratio':>9}"]
    for title, name, digits in ROWS:
        fast, slow = getattr(compiled, name), getattr(interpreted, name)
        ratio = max(fast, slow) / max(min(fast, slow), 1e-9)
        lines.append(f"{title:32}{fast:14,.{digits}f}{slow:14,.{digits}f}{ratio:8.1f}x")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--smoke", action="store_true", help="tiny, one round, no bars")
    parser.add_argument("--round", type=int, metavar="COUNT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.round:
        print(json.dumps(asdict(run_round(given.round))))
        return
    if given.smoke:
        print(json.dumps(asdict(run_round(400)), indent=2))
        return
    if not rocketq.kernel.compiled:
        sys.exit("the kernel is not compiled here (no C compiler was found at setup): there is nothing to compare")
    rounds: dict[str, list[Figures]] = {form: [] for form in FORMS}
    for number in range(ROUNDS):
        for form, count in (("compiled", 400_000), ("interpreted", 20_000)):
            print(f"round {number + 1} of {ROUNDS}, {form} …", file=sys.stderr)
            rounds[form].append(run_form(form, count))
    compiled, interpreted = medians(rounds["compiled"]), medians(rounds["interpreted"])
    print(table(compiled, interpreted))
    bars = judge(compiled, interpreted)
    for bar in bars:
        print(bar)
    print(f"saved as {save('store', {'compiled': asdict(compiled), 'interpreted': asdict(interpreted)})}")
    sys.exit(0 if all(bar.held for bar in bars) else 1)


if __name__ == "__main__":
    with run_folder():
        main()
