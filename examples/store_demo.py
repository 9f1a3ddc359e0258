"""Write, kill, recover, check: the message store in one minute.

A child process appends messages and reports each one that is on disk. It is killed without warning (SIGKILL). Then the
directory is opened again, every reported message is looked for, and the offline verifier has the last word.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rocketq import kernel
from rocketq.model import NewMessage
from rocketq.protocol.properties import encode_properties
from rocketq.store import AppendStatus, FlushType, Store, StoreConfig
from rocketq.store.verify import Verifier

WRITE_S = 2.0


def config_of(root: Path) -> StoreConfig:
    """Small files, so that the demo rolls through many; SYNC_FLUSH, so that an answer means "on disk"."""
    return StoreConfig(
        root=root,
        segment_bytes=1 << 20,
        queue_file_bytes=20_000,
        index_slots=1_000,
        index_units=4_000,
        message_bytes_max=1 << 19,
        flush_type=FlushType.SYNC_FLUSH,
    )


def write_for_ever(root: Path) -> None:
    """The child: append, and say so once it is durable."""
    store = Store.open(config_of(root))
    number = 0
    while True:
        message = NewMessage(
            topic="Orders",
            queue_id=number % 4,
            body=f"order number {number}".encode() * 10,
            properties=encode_properties({"KEYS": f"order-{number}", "TAGS": "paid" if number % 3 else "open"}),
            born_ms=time.time_ns() // 1_000_000,
        )
        result = store.append(message)
        assert result.status is AppendStatus.OK, result
        print(number, message.queue_id, result.queue_offset, result.message_id, flush=True)
        number += 1


def main() -> None:
    if len(sys.argv) == 2:
        write_for_ever(Path(sys.argv[1]))
    with tempfile.TemporaryDirectory(prefix="rocketq-demo-") as folder:
        root = Path(folder) / "store"
        print(f"kernel: {'compiled' if kernel.compiled else 'interpreted'}")
        acknowledged = write_and_kill(root)
        recover_and_compare(root, acknowledged)
        verify(root)


def write_and_kill(root: Path) -> list[list[str]]:
    child = subprocess.Popen([sys.executable, __file__, str(root)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [child.stdout.readline()]
    deadline = time.monotonic() + WRITE_S
    while time.monotonic() < deadline:
        lines.append(child.stdout.readline())
    os.kill(child.pid, signal.SIGKILL)
    lines += child.stdout.readlines()
    child.wait()
    acknowledged = [line.split() for line in lines if line.endswith("\n")]  # the last line may be cut off
    print(f"written: {len(acknowledged)} messages were on disk when the writer was killed (SIGKILL)")
    return acknowledged


def recover_and_compare(root: Path, acknowledged: list[list[str]]) -> None:
    began = time.perf_counter()
    with Store.open(config_of(root)) as store:
        took_ms = (time.perf_counter() - began) * 1000
        report = store.report
        print(
            f"recovered: {report.records} records walked in {took_ms:.0f} ms, {report.cut_bytes} bytes cut at the end"
        )
        for number, queue_id, queue_offset, message_id in acknowledged:
            record = store.message_by_id(message_id)
            assert record is not None, f"message {number} is lost"
            assert record.body.startswith(f"order number {number}".encode())
            assert (record.queue_id, record.queue_offset) == (int(queue_id), int(queue_offset))
        print(f"compared: all {len(acknowledged)} acknowledged messages are there, none is wrong")
        key = f"order-{acknowledged[-1][0]}"
        print(f"found by key {key!r}: {store.query('Orders', key).records[0].body[:24]!r}…")
        first = store.read("Orders", 0, 0)
        print(
            f"read queue 0 from offset 0: {first.count} messages, next offset {first.next_offset} of {first.max_offset}"
        )


def verify(root: Path) -> None:
    report = Verifier(root).run()
    assert report.ok, report.findings
    print(
        f"verified: {report.records} records, {report.queue_units} queue units, {report.index_units} index units: sound"
    )


if __name__ == "__main__":
    main()
