"""Our store read and checked the way the Java driver reads a broker: the same values come out of both."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from rocketq.model import Host, Record, SysFlag
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.compression import decompress
from rocketq.protocol.messages import decode_records
from rocketq.protocol.properties import decode_properties
from rocketq.store import ReadStatus, Store, StoreConfig
from rocketq.store.state_files import StateFiles

from . import processes
from .apache import SMALL_FILES
from .expect import missing_keys
from .messages import Acknowledged, Queue, Stored, View, by_place
from .stream import Stream

QUERY_COUNT_MAX = 64
QUEUE_COUNT = 4
INDEX_SECONDS_MAX = 30.0


def config(root: Path, port: int) -> StoreConfig:
    """File sizes and store host as the Apache brokers of these tests have them."""
    settings = SMALL_FILES | {"maxMessageSize": str(3 << 19)}  # a message must fit in a log file
    return StoreConfig.from_java(settings, root=root, store_host=Host.of("127.0.0.1", port))


def write_topics(root: Path, topics: Iterable[str]) -> None:
    """The state a broker keeps beside the log: without it Apache answers pulls with "topic not exist"."""
    file = StateFiles(root).topics
    before = file.load()
    added = {
        topic: TopicConfig(topic=topic, read_queue_count=QUEUE_COUNT, write_queue_count=QUEUE_COUNT) for topic in topics
    }
    version = before.data_version.next(int(time.time() * 1000))
    file.save(TopicConfigTable(data_version=version, topics=before.topics | added))


def rewrite_state(root: Path) -> None:
    """Load every state file and save it again, as a broker of ours would; Apache must find all in it that it left."""
    files = StateFiles(root)
    for file in (files.topics, files.groups, files.consumer_offsets, files.delay_offsets):
        if file.path.exists():
            file.save(file.load())  # type: ignore[arg-type]


def view(store: Store, expected: Iterable[Acknowledged]) -> View:
    """All queues from min to max, and every id and key of the expected messages looked up."""
    bounds: dict[Queue, tuple[int, int]] = {}
    pulled: list[Stored] = []
    for queue in store.queues:
        bounds[queue.topic, queue.queue_id], stored = _read_queue(store, queue.topic, queue.queue_id)
        pulled += stored
    by_id: dict[str, Stored] = {}
    by_key: dict[tuple[str, str], frozenset[str]] = {}
    for message in expected:
        record = store.message_by_id(message.message_id)
        if record is not None:
            by_id[message.message_id] = stored_from(record)
        for key in message.index_keys:
            if (message.topic, key) not in by_key:
                by_key[message.topic, key] = _query(store, message.topic, key)
    return View(bounds=bounds, pulled=by_place(pulled), by_id=by_id, by_key=by_key)


def settled_view(store: Store, expected: Iterable[Acknowledged]) -> View:
    """The view once the index has been rebuilt, which goes on in the background after a recovery."""
    expected = list(expected)
    deadline = time.monotonic() + INDEX_SECONDS_MAX
    while True:
        seen = view(store, expected)
        if not missing_keys(seen, expected) or time.monotonic() > deadline:
            return seen


def _read_queue(store: Store, topic: str, queue_id: int) -> tuple[tuple[int, int], list[Stored]]:
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    at, found = low, list[Stored]()
    while at < high:
        result = store.read(topic, queue_id, at, count_max=32)
        assert result.status is ReadStatus.FOUND, f"{topic}/{queue_id} at {at} of [{low}, {high}): {result.status}"
        assert result.next_offset > at
        found += [stored_from(record) for record in decode_records(result.records)]
        at = result.next_offset
    return (low, high), found


def _query(store: Store, topic: str, key: str) -> frozenset[str]:
    """As a client does it: what the hash found and the key confirms."""
    end_ms = int(time.time() * 1000) + 3_600_000
    result = store.query(topic, key, count_max=QUERY_COUNT_MAX, begin_ms=0, end_ms=end_ms)
    found = [stored_from(record) for record in result.records]
    return frozenset(one.message_id for one in found if one.topic == topic and key in one.index_keys)


def stored_from(record: Record) -> Stored:
    body = decompress(record.body, record.sys_flag)
    return Stored(
        topic=record.topic,
        queue_id=record.queue_id,
        queue_offset=record.queue_offset,
        log_offset=record.log_offset,
        size=record.size,
        message_id=record.message_id,
        body_sha256=hashlib.sha256(body).hexdigest(),
        body_bytes=len(body),
        body_crc=record.body_crc,
        properties=decode_properties(record.properties),
        flag=record.flag,
        sys_flag=record.sys_flag & ~SysFlag.COMPRESSED,
        born_ms=record.born_ms,
        born_host=record.born_host,
        store_ms=record.store_ms,
        store_host=record.store_host,
        reconsume_times=record.reconsume_times,
        prepared_offset=record.prepared_offset,
    )


def write_until_killed(root: Path, port: int, topic: str, count: int) -> list[Acknowledged]:
    """A process of its own appends; once it has had `count` messages acknowledged it is killed. What it had."""
    package = Path(__file__).parent
    command = [sys.executable, "-m", f"{package.name}.our_writer", str(root), str(port), topic]
    lines = root.with_name("our_writer.jsonl")
    with lines.open("wb") as out, root.with_name("our_writer.log").open("wb") as errors:
        environment = os.environ | {"PYTHONPATH": str(package.parent)}
        process = processes.start(command, log=errors, stdout=out, env=environment)
        stream = Stream(process, str(lines))
        try:
            stream.await_count(count)
        finally:
            stream.kill()
    return stream.acknowledged()


def check(root: Path) -> None:
    """The offline verifier must find nothing wrong."""
    ran = subprocess.run(
        [sys.executable, "-m", "rocketq", "store", "check", str(root), "--json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ran.returncode == 0, (
        f"store check of {root} says {ran.returncode}:\n{ran.stdout[-4000:]}{ran.stderr[-2000:]}"
    )
    json.loads(ran.stdout)
