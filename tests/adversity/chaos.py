"""Hundreds of failovers of real brokers: `python -m tests.adversity.chaos`, the second half of `make chaos`.

Several clusters at a time, each with its own etcd of three, NameServer, brokers and ports; each lives for a few
failovers, then its history is checked. Figures of all are printed at the end; a loss or a broken promise is an error.

| environment | default | meaning |
|---|---|---|
| ROCKETQ_FAILOVERS | 200 | how many |
| ROCKETQ_ROWS | two per core | clusters at a time |
| ROCKETQ_CHAOS_MINUTES | 60 | no new cluster is begun after so long |
| ROCKETQ_CHAOS_SEED | 1 | which faults, in which order |
"""

from __future__ import annotations

import concurrent.futures
import logging
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

from rocketq.broker.free_port import RANGE_VARIABLE
from rocketq.testing.etcd import PACKAGE, find_etcd

from .failover_turns import PLANNED, Figures, Row, run_row
from .namespaces import why_not
from .replica_processes import TTL_S
from .small_disks import small_disks_work

TURNS_PER_CLUSTER = 10
SEND_EVERY_S = 0.02
"""Per sender: several clusters share the machine."""
KEPT_LOGS = Path(__file__).parents[2] / "build" / "chaos-logs"
CUTS = ("cut-etcd", "cut-etcd-one-way", "cut-servers", "cut-all", "cut-slaves", "cut-slaves-one-way")


def plan(failovers: int, seed: int, *, cuts: bool, disks: bool) -> list[Row]:
    """Of four clusters one is killed only, with ASYNC_FLUSH; the others have every kind of fault."""
    kinds = (
        "kill",
        "pause",
        "restart",
        "pause",
        *(("full-disk",) if disks else ()),
        *(CUTS if cuts else ()),
        "switch",
        "stop",
    )
    rows: list[Row] = []
    while (left := failovers - sum(row.turns for row in rows)) > 0:
        number, turns = len(rows), min(left, TURNS_PER_CLUSTER)
        if number % 4 == 0:
            row = Row(turns=turns, kinds=("kill",), flush="ASYNC_FLUSH", seed=seed + number, send_every_s=SEND_EVERY_S)
        else:
            mode = "strict" if number % 2 else "available"
            row = Row(turns=turns, kinds=kinds, mode=mode, seed=seed + number, send_every_s=SEND_EVERY_S)
        rows.append(row)
    return rows


def run(row: Row) -> tuple[Figures | None, str]:
    """In a process of its own: figures, or what went wrong."""
    logging.getLogger("rocketq").setLevel(logging.CRITICAL)  # clients complain, as they should
    low = 20_000 + 1_000 * ((row.seed or 0) % 12)
    os.environ[RANGE_VARIABLE] = f"{low}-{low + 1_000}"  # who is killed must find its ports free again
    folder = Path(tempfile.mkdtemp(prefix="rocketq-chaos-"))
    try:
        return run_row(folder, row), ""
    except Exception:  # told with its seed; the other clusters go on
        _keep_logs(folder, KEPT_LOGS / str(row.seed))
        return None, traceback.format_exc()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep_logs(folder: Path, into: Path) -> None:
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for log in folder.glob("*.log"):
        shutil.copy(log, into)


def table(by_row: dict[str, Figures]) -> str:
    """Gaps by kind of fault, then counts by kind of cluster."""
    total = Figures()
    for figures in by_row.values():
        total.add(figures)
    lines = ["", f"{'fault':<18} {'failovers':>9} {'p50 s':>7} {'max s':>7}   (time without writes)"]
    unplanned = [gap_s for kind, gaps_s in total.gaps_s.items() if kind not in PLANNED for gap_s in gaps_s]
    for kind, gaps_s in [*sorted(total.gaps_s.items()), ("all but planned", unplanned), ("all", total.all_gaps_s)]:
        if gaps_s:
            lines.append(f"{kind:<18} {len(gaps_s):>9} {statistics.median(gaps_s):>7.2f} {max(gaps_s):>7.2f}")
    lines.append(f"aims: {TTL_S + 3} s (haLeaseTtl + 3 s), 1 s where it is planned ({', '.join(sorted(PLANNED))})")
    names = ("acked", "lost", "unknown", "stored_twice", "delivered_again")
    lines += ["", " ".join([f"{'cluster':<24}", *(f"{name.replace('_', ' '):>15}" for name in names)])]
    for name, figures in [*sorted(by_row.items()), ("all", total)]:
        lines.append(" ".join([f"{name:<24}", *(f"{getattr(figures, each):>15}" for each in names)]))
    return "\n".join(lines)


def main() -> int:
    if find_etcd() is None:
        print(f"chaos: skipped: the program etcd is not installed (apt install {PACKAGE})")
        return 0
    failovers = int(os.environ.get("ROCKETQ_FAILOVERS", "200"))
    rows_max = int(os.environ.get("ROCKETQ_ROWS", str(2 * (os.cpu_count() or 1))))
    ends_s = time.monotonic() + 60 * float(os.environ.get("ROCKETQ_CHAOS_MINUTES", "60"))
    no_cuts = why_not()
    if no_cuts:
        print(f"chaos: without partitions: {no_cuts}")
    rows = plan(
        failovers, int(os.environ.get("ROCKETQ_CHAOS_SEED", "1")), cuts=no_cuts is None, disks=small_disks_work()
    )
    print(f"chaos: {failovers} failovers in {len(rows)} clusters, {rows_max} at a time", flush=True)
    by_row, failures = _run_all(rows, rows_max, ends_s)
    print(table(by_row))
    lost = sum(figures.lost for figures in by_row.values())
    done = sum(len(figures.all_gaps_s) for figures in by_row.values())
    print(f"\nchaos: {done} of {failovers} failovers, {lost} acknowledged messages lost, {failures} clusters failed")
    return 1 if failures or lost or not done else 0


def _run_all(rows: list[Row], rows_max: int, ends_s: float) -> tuple[dict[str, Figures], int]:
    by_row: dict[str, Figures] = {}
    failures = 0
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(rows_max, mp_context=spawn) as pool:
        waiting, running = list(rows), dict[concurrent.futures.Future[tuple[Figures | None, str]], Row]()
        while running or (waiting and time.monotonic() < ends_s):
            while waiting and len(running) < rows_max and time.monotonic() < ends_s:
                row = waiting.pop(0)
                running[pool.submit(run, row)] = row
            finished, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for future in finished:
                row = running.pop(future)
                figures, trouble = future.result()
                if figures is None:
                    failures += 1
                    print(f"chaos: seed {row.seed}, {row.name}: FAILED\n{trouble}", flush=True)
                else:
                    by_row.setdefault(row.name, Figures()).add(figures)
                    print(figures.line(f"chaos: seed {row.seed}, {row.name}"), flush=True)
    return by_row, failures


if __name__ == "__main__":
    sys.exit(main())
