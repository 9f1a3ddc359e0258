"""Opening again after a crash: whatever was acknowledged is served, odd messages too; odd headers harm nobody else."""

from __future__ import annotations

import shutil
from pathlib import Path
from struct import pack

import pytest

from rocketq.model import Host
from rocketq.store import Store
from rocketq.store.recovery_point import FILE_NAME

from .kit import bodies, fill, message, open_store, packed, records


def crashed(store: Store, root: Path) -> Path:
    """What a killed process leaves: the files as they are, no recovery point, the abort mark in place."""
    copy = root.with_name(root.name + "-crashed")
    shutil.copytree(store.config.root, copy)
    (copy / FILE_NAME).unlink(missing_ok=True)
    return copy


ODD = {
    "no properties": {"properties": b""},
    "no UTF-8": {"properties": b"\xff\x01\xfe\x02"},
    "no items": {"properties": b"\x02\x02\x01"},
    "empty body": {"body": b""},
    "body of zeros": {"body": bytes(3_000)},
    "body of records": {"body": bytes.fromhex("0000005bdaa320a7") * 50},
    "negative numbers": {"flag": -1, "born_ms": -1, "reconsume_times": -1, "prepared_offset": -1},
    "IPv6": {"born_host": Host.of("::1", 1)},
    "commit": {"sys_flag": 8},
}


@pytest.mark.parametrize("given", ODD.values(), ids=ODD)
@pytest.mark.parametrize("place", ["middle", "last"])
def test_odd_message_survives_a_crash(tmp_path: Path, given: dict[str, object], place: str) -> None:
    """Goal: what an append accepted is never taken for damage afterwards, in the middle of the log or at its end."""
    store = open_store(tmp_path / "store")
    fill(store, 3)
    assert store.append(message(**given)).status.stored  # type: ignore[arg-type]
    if place == "middle":
        fill(store, 3)
    served = store.read("T", 0, 0)
    again = open_store(crashed(store, tmp_path / "store"))
    assert again.read("T", 0, 0).records == served.records
    assert again.log_end == store.log_end
    assert again.report.holes == []
    again.close()
    store.close()


@pytest.mark.parametrize(
    "properties", [b"A\x01x\x00", bytes(10), b"A\x01" + bytes(1_500) + b"x\x02", b"A\x01x\x02" + bytes(3)]
)
@pytest.mark.parametrize("packing", ["single", "inner", "batch"])
def test_properties_with_zeros_are_refused_or_survive_a_crash(tmp_path: Path, properties: bytes, packing: str) -> None:
    """Goal: recovery takes zeros in properties for a torn write, so no message may be acknowledged with them."""
    store = open_store(tmp_path / "store")
    inner = pack(">iiiii", 22 + len(properties), 0, 0, 0, 0) + pack(">h", len(properties)) + properties
    result = {
        "single": lambda: store.append(message(properties=properties)),
        "inner": lambda: store.append_batch(message(inner + packed(b"more"))),
        "batch": lambda: store.append_batch(message(packed(b"1", b"2"), properties=properties)),
    }[packing]()
    fill(store, 2)
    again = open_store(crashed(store, tmp_path / "store"))
    assert again.read("T", 0, 0).records == store.read("T", 0, 0).records
    assert again.report.holes == [], result.status
    again.close()
    store.close()


@pytest.mark.parametrize("queue_offset", [-1, -2, 7, 1 << 40, (1 << 63) - 1, -(1 << 63)])
@pytest.mark.parametrize("victim", [0, 2, 4])
def test_damaged_queue_offset_costs_only_its_message(tmp_path: Path, queue_offset: int, victim: int) -> None:
    """Goal: no CRC covers a record's queue offset; the other messages keep theirs, and none is given twice."""
    store = open_store(tmp_path / "store")
    offsets = fill(store, 5, TAGS="A")
    store.flush()
    copy = crashed(store, tmp_path / "store")
    with open(copy / "commitlog" / ("0" * 20), "r+b") as file:
        file.seek(offsets[victim] + 20)
        file.write(pack(">q", queue_offset))
    again = open_store(copy)
    first = again.min_offset("T", 0)
    served = [record.queue_offset for record in records(again.read("T", 0, max(first, 0)))]
    assert set(served) >= {0, 1, 2, 3, 4} - {victim}
    assert again.append(message()).queue_offset >= (5 if victim != 4 else 4)
    again.close()
    store.close()


@pytest.mark.parametrize("with_queues", [True, False], ids=["queues", "no-queues"])
def test_crashed_store_is_whole_again(tmp_path: Path, with_queues: bool) -> None:
    """Goal: with the queue files as the crash left them or without any, every message has its old place."""
    store = open_store(tmp_path / "store")
    for queue_id in range(3):
        fill(store, 10, queue_id=queue_id, KEYS="k")
    store.append_batch(message(packed(b"1", b"2"), topic="Batch"))
    copy = crashed(store, tmp_path / "store")
    if not with_queues:
        shutil.rmtree(copy / "consumequeue")
    again = open_store(copy)
    for topic, queue_id in [("T", 0), ("T", 1), ("T", 2), ("Batch", 0)]:
        assert again.read(topic, queue_id, 0).records == store.read(topic, queue_id, 0).records
        assert again.max_offset(topic, queue_id) == store.max_offset(topic, queue_id)
    assert again.log_end == store.log_end
    assert len(again.query("T", "k", count_max=64).records) == 30
    assert again.append(message(b"next", queue_id=1)).queue_offset == 10
    assert bodies(again.read("T", 1, 10)) == [b"next"]
    again.close()
    store.close()
