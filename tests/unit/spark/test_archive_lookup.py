"""Archived messages are found by key, id, place and time."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed (it comes with rocketq[spark])")

from tests.unit.spark.archive_writing import add
from tests.unit.spark.log_writing import record

from rocketq.protocol.properties import encode_properties
from rocketq.spark.archive import parts
from rocketq.spark.archive.keys import rows_with
from rocketq.spark.archive.lookup import Archive


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Archive:
    """Five runs of 40 messages with row groups of a few rows; message n has keys kn and group<n % 10>."""
    monkeypatch.setattr(parts, "ROW_GROUP_BYTES", 1)
    for run in range(5):
        add(
            tmp_path,
            [
                record(
                    n,
                    log_offset=1000 * n,
                    properties=encode_properties(
                        {"KEYS": f"k{n} group{n % 10}", "UNIQ_KEY": f"ID{n}"} if n % 4 else {}
                    ),
                )
                for n in range(40 * run, 40 * run + 40)
            ],
        )
    return Archive(tmp_path)


def offsets(table: object) -> list[int]:
    return sorted(table.column("queueOffset").to_pylist())  # type: ignore[attr-defined]


def test_by_key(archive: Archive) -> None:
    for n in (1, 77, 199):
        found = archive.by_key(f"T{n % 2}", f"k{n}")
        assert offsets(found) == [n]
        assert found.column("body").to_pylist() == [b"body %d" % n]
        assert found.column("topic").to_pylist() == [f"T{n % 2}"]
    assert archive.by_key("T0", "k1").num_rows == 0
    assert archive.by_key("T1", "k").num_rows == 0
    assert archive.by_key("T1", "nope").num_rows == 0


def test_a_key_of_many_messages_and_a_time(archive: Archive) -> None:
    every = [n for n in range(200) if n % 10 == 3]
    assert offsets(archive.by_key("T1", "group3")) == every
    assert offsets(archive.by_key("T1", "group3", from_ms=50_000, to_ms=93_000)) == [53, 63, 73, 83]
    assert archive.by_key("T1", "group3", count_max=2).num_rows == 2


def test_by_id_of_the_client_or_of_the_place(archive: Archive) -> None:
    assert offsets(archive.by_id("ID101")) == [101]
    assert offsets(archive.by_id("ID101", topic="T1")) == [101]
    assert offsets(archive.by_id("ID101", topic="T0")) == []
    for n in (101, 104):  # with and without an id of its own
        assert offsets(archive.by_id(record(n, log_offset=1000 * n).message_id)) == [n]
    assert archive.by_id("garbage").num_rows == 0


def test_by_time(archive: Archive) -> None:
    assert offsets(archive.by_time("T0", 100_000, 110_000)) == [100, 102, 104, 106, 108]
    assert len(offsets(archive.by_time("T1"))) == 100
    assert archive.by_time("T1", count_max=7).num_rows == 7
    assert archive.by_time("nope").num_rows == 0
    assert archive.topics == {"T0": 100, "T1": 100}


def test_only_files_that_can_hold_it_are_named(archive: Archive) -> None:
    assert len(archive.paths()) == 10
    assert len(archive.paths(["T0"], 40_000, 80_000)) == 1


def test_texts_with_one_hash_are_told_apart(tmp_path: Path) -> None:
    """Goal: a hash says where to look, and no more."""
    one, other = "plumless", "buckeroo"  # equal CRC-32
    for number, key in enumerate((one, other)):
        add(tmp_path, [record(number, topic="T", properties=encode_properties({"KEYS": key}))])
    opened = Archive(tmp_path)
    for file in opened.state.files.values():
        assert rows_with(tmp_path / file.keys_path, one) == [0]
    assert offsets(opened.by_key("T", one)) == [0]
    assert offsets(opened.by_key("T", other)) == [1]
