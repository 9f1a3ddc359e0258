"""A process that forks writers to be killed: one line of JSON in says what to write, lines out say what was promised.

pid <n>                                             the writer that was forked
<number> <topic> <queue id> <queue offset> <log offset> <end> <acknowledged to>    an append that was answered
reaped <status>                                     the writer is gone; nothing of it comes after this
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from rocketq.store import AppendStatus, FlushType, Store, StoreConfig

from .stores import batch, message, small_config

TOPICS = ("Orders", "Pay-ments", "%RETRY%group")
BATCH_COUNT = 4


def crash_config(root: Path, mode: str) -> StoreConfig:
    """Files that roll every few dozen messages, services that are always busy."""
    return small_config(
        root,
        segment_bytes=16384,
        queue_file_bytes=200,
        index_slots=50,
        index_units=60,
        message_bytes_max=8000,
        flush_type=FlushType.SYNC_FLUSH if mode == "sync" else FlushType.ASYNC_FLUSH,
        transient_buffer=mode == "transient",
        queue_extensions=mode == "extended",
        extension_file_bytes=250,
        flush_interval_ms=2,
        commit_interval_ms=2,
        commit_thorough_interval_ms=2,
        flush_thorough_interval_ms=5,
        queue_flush_interval_ms=5,
        queue_flush_thorough_interval_ms=20,
    )


def open_store(root: Path, mode: str) -> Store:
    """Extensions, where there are any, have the message's own keys for a bitmap: a reader can tell whose they are."""
    store = Store.open(crash_config(root, mode))
    store.calculate_bitmaps(lambda topic, properties, store_ms: properties)
    return store


def write(root: Path, mode: str, seed: int, first: int, limit: int) -> None:
    """Append `limit` messages or so, saying each; then wait to be killed."""
    source = random.Random(f"{seed}/{first}")
    store = open_store(root, mode)
    number = first
    while number < first + limit:
        topic, queue_id = source.choice(TOPICS), source.randrange(2)
        if source.randrange(7) == 0:
            result = store.append_batch(batch(number, BATCH_COUNT, topic=topic, queue_id=queue_id, seed=seed))
        else:
            result = store.append(message(number, topic=topic, queue_id=queue_id, seed=seed))
        if result.status is not AppendStatus.OK:
            raise RuntimeError(f"{result.status}: {result.reason}")
        for step, log_offset in enumerate(result.log_offsets):
            place = f"{number + step} {topic} {queue_id} {result.queue_offset + step} {log_offset} {result.end}"
            say(f"{place} {store.acknowledged_to}")
        number += len(result.log_offsets)
        if source.randrange(40) == 0:
            store.save_recovery_point()
        if source.randrange(60) == 0:
            store.close()
            store = open_store(root, mode)
    while True:
        say(f"idle {store.acknowledged_to}")
        signal.sigtimedwait([], 0.02)  # a pause that a kill ends


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")  # one call: a line is whole or not there


def main() -> None:
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                say(f"pid {os.getpid()}")  # by itself: whatever else it says comes after
                write(Path(order["root"]), order["mode"], order["seed"], order["first"], order["limit"])
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(3)
        _, status = os.waitpid(child, 0)
        say(f"reaped {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
