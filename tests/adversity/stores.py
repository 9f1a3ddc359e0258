"""Healthy stores to damage, and the questions every reopened store must answer."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import tarfile
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rocketq.model import Host, NewMessage
from rocketq.protocol.messages import BatchElement, encode_batch
from rocketq.store import AppendResult, AppendStatus, FlushType, ReadStatus, Store, StoreConfig

from . import raw_store
from .raw_store import RawRecord

GOLDEN = Path(__file__).parent.parent / "golden" / "store"
INDEX_SECONDS_MAX = 60
OUR_VARIANTS = ("ours-clean", "ours-crash", "ours-crash-after-point")
APACHE_VARIANTS = ("apache-4.9.7-clean", "apache-4.9.7-clean+abort", "apache-5.3.3-clean", "apache-5.3.3-clean+abort")
TOPICS = ("Orders", "Pay-ments", "%RETRY%group")
READABLE = (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.MESSAGE_WAS_REMOVING)
HOST = Host.of("127.0.0.1", 10911)


def small_config(root: Path, **given: object) -> StoreConfig:
    """Files so small that everything rolls; a nearly full machine must not refuse the tests' messages."""
    settings: dict[str, object] = {
        "segment_bytes": 64 << 10,
        "queue_file_bytes": 1000,
        "index_slots": 100,
        "index_units": 300,
        "message_bytes_max": 16 << 10,
        "disk_force_clean_ratio": 1.0,
        "disk_refuse_ratio": 1.0,
        "disk_used_percent_max": 95,
        "delete_when": "04",
        "reserved_hours": 1_000_000,
        "store_host": HOST,
    }
    return StoreConfig(root=root, **(settings | given))  # type: ignore[arg-type]


def message(number: int, *, topic: str, queue_id: int, seed: int = 0) -> NewMessage:
    """Everything about it follows from its number, so that any copy of it can be judged."""
    keys = f"key-{seed}-{number} group-{number // 4}"
    properties = f"UNIQ_KEY\x01uniq-{seed}-{number}\x02KEYS\x01{keys}\x02TAGS\x01Tag{number % 3}\x02"
    return NewMessage(
        topic=topic,
        queue_id=queue_id,
        body=body_of(number, seed),
        properties=properties.encode(),
        born_ms=1_700_000_000_000,
    )


def body_of(number: int, seed: int = 0) -> bytes:
    source = random.Random(f"{seed}/{number}")
    return b"%d/%d " % (seed, number) + source.randbytes(source.choice((0, 1, 30, 200, 200, 700)))


def batch(first: int, count: int, *, topic: str, queue_id: int, seed: int = 0) -> NewMessage:
    inner = [message(number, topic=topic, queue_id=queue_id, seed=seed) for number in range(first, first + count)]
    packed = encode_batch(BatchElement(body=one.body, properties=one.properties) for one in inner)
    return replace(inner[0], body=packed, properties=b"WAIT\x01true\x02")


def fill(store: Store, first: int, count: int, *, seed: int = 0) -> list[AppendResult]:
    """Messages to several topics and queues, each ninth step a batch of five."""
    results, number = [], first
    while number < first + count:
        topic, queue_id = TOPICS[number % len(TOPICS)], number // 3 % 2
        if number % 9 == 8:
            result = store.append_batch(batch(number, 5, topic=topic, queue_id=queue_id, seed=seed))
            number += 5
        else:
            result = store.append(message(number, topic=topic, queue_id=queue_id, seed=seed))
            number += 1
        assert result.status is AppendStatus.OK, result.reason
        results.append(result)
    return results


@dataclass(frozen=True)
class Healthy:
    """A store directory in good order and every record in its log."""

    name: str
    config: StoreConfig
    records: tuple[RawRecord, ...]

    def copy(self, into: Path) -> Healthy:
        root = into / self.name.replace("+", "-")
        shutil.copytree(self.config.root, root)
        return replace(self, config=replace(self.config, root=root))

    @property
    def root(self) -> Path:
        return self.config.root

    @property
    def log_end(self) -> int:
        return self.records[-1].end

    @property
    def bases(self) -> list[int]:
        """Starts of the log files that hold records."""
        return sorted({self.base_of(record) for record in self.records})

    def base_of(self, record: RawRecord) -> int:
        return record.log_offset - record.log_offset % self.config.segment_bytes

    def in_file(self, number: int) -> list[RawRecord]:
        base = self.bases[number]
        return [record for record in self.records if self.base_of(record) == base]

    def path_of(self, record: RawRecord) -> Path:
        return raw_store.log_file(self.config, record.log_offset)

    def position(self, record: RawRecord) -> int:
        return record.log_offset % self.config.segment_bytes

    def busiest_queue(self) -> tuple[str, int]:
        queues = [record.queue for record in self.records if record.queued]
        return max(sorted(set(queues)), key=queues.count)


def make_healthy(name: str, into: Path) -> Healthy:
    return _make_ours(name, into) if name.startswith("ours") else _unpack_apache(name, into)


def _make_ours(name: str, into: Path) -> Healthy:
    config = small_config(into / "source")
    store = Store.open(config, services=False)
    fill(store, 0, 200)
    if name == "ours-crash-after-point":
        store.save_recovery_point()
    fill(store, 205, 300)
    store.flush()
    kept = replace(config, root=into / name)
    if name == "ours-clean":
        store.close()
    shutil.copytree(config.root, kept.root)  # a copy of an open store is what a killed process leaves
    store.close()
    assert (kept.root / "abort").exists() == (name != "ours-clean")
    return Healthy(name, kept, tuple(raw_store.walk(kept)))


def _unpack_apache(name: str, into: Path) -> Healthy:
    source, _, abort = name.partition("+")
    index = json.loads((GOLDEN / "index.json").read_text())
    facts = next(store for store in index["stores"] if store["name"] == source)
    with tarfile.open(GOLDEN / facts["archive"]) as archive:
        archive.extractall(into, filter="data")
    with gzip.open(GOLDEN / facts["manifest"], "rt") as lines:
        acknowledged = [json.loads(line) for line in lines]
    conf = facts["conf"]
    config = StoreConfig.from_java(
        conf,
        root=into / source,
        store_host=Host.of("127.0.0.1", int(conf["listenPort"])),
        message_bytes_max=512 << 10,
        disk_force_clean_ratio=1.0,
        disk_refuse_ratio=1.0,
        reserved_hours=1_000_000,
    )
    if abort:
        (config.root / "abort").touch()
    records = tuple(raw_store.walk(config))
    assert {entry["logOffset"] for entry in acknowledged} <= {record.log_offset for record in records}
    return Healthy(name, config, records)


# Questions


def await_index(store: Store) -> None:
    """The index may be built in the background: be there when it is done."""
    for thread in threading.enumerate():
        if thread.name == "rocketq-index-rebuild":
            thread.join(INDEX_SECONDS_MAX)
            assert not thread.is_alive(), "the index is still being built"


def read_queue(store: Store, topic: str, queue_id: int) -> list[RawRecord]:
    """Everything the queue serves, from its minimum to its maximum."""
    at, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    found: list[RawRecord] = []
    while at < high:
        result = store.read(topic, queue_id, at)
        assert result.next_offset > at, f"{topic}/{queue_id} at {at} of {high}: {result.status}, no progress"
        assert result.status in (ReadStatus.FOUND, ReadStatus.NO_MATCHED_MESSAGE, ReadStatus.MESSAGE_WAS_REMOVING), (
            result
        )
        served = raw_store.parse_all(result.records)
        assert all(at <= record.queue_offset < result.next_offset for record in served)
        found += served
        at = result.next_offset
    return found


def verify(store: Store, kept: Sequence[RawRecord], lost: Iterable[RawRecord] = ()) -> None:
    """All of `kept` is served by queue offset, by id and by key, byte for byte; nothing else is, nor `lost`."""
    lost_offsets = {record.log_offset for record in lost}
    wanted = {(*record.queue, record.queue_offset): record for record in kept if record.queued}
    for topic, queue_id in sorted({record.queue for record in kept if record.queued}):
        offsets = []
        for record in read_queue(store, topic, queue_id):
            place = (topic, queue_id, record.queue_offset)
            assert record.log_offset not in lost_offsets, f"a damaged record was served: {place}"
            assert place in wanted, f"a message nobody knows at {place}"
            assert record.data == wanted.pop(place).data, f"{place} is not the message that was stored"
            offsets.append(record.queue_offset)
        assert offsets == sorted(set(offsets)), f"{topic}/{queue_id} is out of order"
    assert not wanted, f"{len(wanted)} messages cannot be reached by queue offset, such as {next(iter(wanted))}"
    for record in kept:
        served = store.message_at(record.log_offset)
        assert served is not None, f"the message at {record.log_offset} cannot be read by its id"
        assert (served.body, served.topic, served.queue_offset) == (record.body, record.topic, record.queue_offset)
        assert store.message_by_id(served.message_id) == served
    for offset in lost_offsets:
        assert store.message_at(offset) is None, f"the damaged record at {offset} was served by id"
    verify_keys(store, kept)


def verify_keys(store: Store, kept: Sequence[RawRecord]) -> None:
    by_key: dict[tuple[str, str], set[int]] = {}
    for record in kept:
        for key in record.keys:
            by_key.setdefault((record.topic, key), set()).add(record.log_offset)
    for (topic, key), offsets in by_key.items():
        found = {record.log_offset for record in store.query(topic, key, count_max=64).records}
        if len(offsets) <= 64:
            assert found == offsets, f"key {key} of {topic}: {sorted(found)} instead of {sorted(offsets)}"


def append_fresh(store: Store, known: Sequence[RawRecord], *, seed: int) -> list[RawRecord]:
    """New messages to every queue (twelve at most): each gets the offset behind the last one that was ever given."""
    ends: dict[tuple[str, int], int] = {}
    for record in known:
        if record.queued:
            ends[record.queue] = max(ends.get(record.queue, 0), record.queue_offset + 1)
    fresh: list[RawRecord] = []
    for topic, queue_id in [queue for queue in sorted(ends) if len(queue[0]) <= 127][:12]:
        for step in range(2):
            new = message(100_000 + len(fresh), topic=topic, queue_id=queue_id, seed=seed)
            result = store.append(new)
            assert result.status is AppendStatus.OK, result.reason
            assert result.queue_offset == ends[topic, queue_id] + step, f"{topic}/{queue_id} gave {result.queue_offset}"
            fresh.append(raw_store.record_at(store.config, result.log_offset))
    return fresh


def check_directory(config: StoreConfig, kept: Sequence[RawRecord], lost: Iterable[RawRecord] = ()) -> None:
    """A closed directory, looked at without the store: queues and index agree with the log, no stale byte is left."""
    others = {record.log_offset for record in lost}
    raw_store.check_queues(config, list(kept), others)
    raw_store.check_index(config, list(kept), others)


def reopen_again_and_again(
    healthy: Healthy, *, kept: Sequence[RawRecord] | None = None, lost: Sequence[RawRecord] = ()
) -> str:
    """Open a damaged store and ask for everything; append; open it twice more, once with all shortcuts gone: whatever
    was cut must not come back. What the first opening had to say."""
    known = list(healthy.records if kept is None else kept)
    config, said = healthy.config, ""
    for number in range(3):
        with Store.open(config) as store:
            await_index(store)
            if number == 0:
                said = "\n".join(store.report.notes)
            else:
                assert store.report.cut_bytes == 0, f"opening {number} cut again: {store.report.notes}"
            if number == 0:
                verify(store, known, lost)
            known += append_fresh(store, [*known, *lost], seed=number + 1)
            store.flush()
            verify(store, known, lost)
        check_directory(config, known, lost)
        if number == 0:
            (config.root / "recovery.rocketq").unlink(missing_ok=True)
            (config.root / "abort").touch()
    return said


def sync_config(root: Path, **given: object) -> StoreConfig:
    return small_config(root, flush_type=FlushType.SYNC_FLUSH, **given)
