"""Log files in byte ranges: the same rows and the same damage wherever they are cut."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed (it comes with rocketq[spark])")

import pyarrow as pa
from tests.unit.spark.log_writing import V6, overwrite, record, write_log

from rocketq.columns import arrow_schema
from rocketq.model import SysFlag
from rocketq.protocol.messages import encode_record
from rocketq.protocol.properties import encode_properties
from rocketq.spark.commitlog_files import ByteRange, LogFile, find_log_files, plan_ranges
from rocketq.spark.commitlog_scan import CORRUPT, CORRUPT_TYPE, Choice, DamagedLogError, RangeScan
from rocketq.store.log_reader import ChainedFile

FILE_BYTES = 4096
WITH_DAMAGE = pa.schema([*arrow_schema(["logOffset", "body", "topic"]), pa.field(CORRUPT, CORRUPT_TYPE)])
Row = tuple[int | None, bytes | None, str | None, tuple[str, int, int] | None]


def rows_of(part: ByteRange, **options: object) -> list[Row]:
    found: list[Row] = []
    for batch in RangeScan(part, WITH_DAMAGE, **options).batches():  # type: ignore[arg-type]
        batch.validate(full=True)
        for row in batch.to_pylist():
            bad = row[CORRUPT]
            told = (bad["reason"], bad["logOffset"], bad["bytes"]) if bad else None
            found.append((row["logOffset"], row["body"], row["topic"], told))
    return found


def whole(file: LogFile, **options: object) -> list[Row]:
    return rows_of(ByteRange(file, 0, file.size_bytes), **options)


def read_all(folder: Path, range_bytes: int = 1 << 20, **options: object) -> list[Row]:
    return [
        row for part in plan_ranges(find_log_files([str(folder)]), range_bytes=range_bytes)
        for row in rows_of(part, **options)
    ]  # fmt: skip


def damages(rows: list[Row]) -> list[tuple[str, int, int]]:
    return [row[3] for row in rows if row[3] is not None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "commitlog"


@pytest.mark.parametrize("look_back_bytes", [1, 200, 1000, 1 << 20])
def test_a_cut_at_any_byte_gives_the_same_rows(folder: Path, look_back_bytes: int) -> None:
    """Goal: a record belongs to the range it starts in, whatever lies around the cut."""
    inner = encode_record(record(900, log_offset=150))  # a body that looks like records, one of them even in its place
    kinds = [
        record(0),
        record(1, body=b"x" * 37 + inner + inner),
        record(2, born_host=V6, sys_flag=SysFlag.BORN_HOST_V6),
        record(3, version=2, topic="%RETRY%" + "g" * 140),
        record(4, body=b""),
        record(5, sys_flag=SysFlag.COMPRESSED, body=zlib.compress(b"inflated")),
        *map(record, range(6, 12)),
    ]
    placed = write_log(folder, kinds, file_bytes=FILE_BYTES)
    assert placed[1].log_offset < 150 < placed[2].log_offset
    (file,) = find_log_files([str(folder)])
    expected = whole(file)
    assert [row[0] for row in expected] == [each.log_offset for each in placed]
    assert expected[5][1] == b"inflated"
    for cut in range(1, placed[-1].log_offset + 200):
        parts = [ByteRange(file, 0, cut), ByteRange(file, cut, file.size_bytes)]
        found = [row for part in parts for row in rows_of(part, look_back_bytes=look_back_bytes)]
        if look_back_bytes < 400 and placed[1].log_offset < cut < placed[2].log_offset:
            continue  # a record longer than we look back, with a record inside: only looking back further can tell
        assert found == expected, cut


@pytest.mark.parametrize("range_bytes", [1024, 1500, 4096, 1 << 20])
def test_several_files_in_pieces_of_any_size_give_every_record_once(folder: Path, range_bytes: int) -> None:
    placed = write_log(folder, map(record, range(300)), file_bytes=FILE_BYTES)
    found = read_all(folder, range_bytes, look_back_bytes=300, batch_bytes=700)
    assert [(row[0], row[1]) for row in found] == [(each.log_offset, each.body) for each in placed]
    assert damages(found) == []


def test_damage_anywhere_is_one_told_stretch_and_all_else_is_read(folder: Path) -> None:
    """Goal: whichever byte of a record breaks, its neighbours are rows and the range's cut changes nothing."""
    placed = write_log(folder, map(record, range(8)), file_bytes=FILE_BYTES)
    hurt, path = placed[3], folder / f"{0:020d}"
    content = path.read_bytes()
    for at in range(hurt.size):
        broken = bytearray(content)
        broken[hurt.log_offset + at] ^= 0x5A
        path.write_bytes(broken)
        (file,) = find_log_files([str(folder)])
        rows = whole(file)
        good = [row[0] for row in rows if row[3] is None]
        others = [each.log_offset for each in placed if each is not hurt]
        if damages(rows):
            assert good == others, at
            assert damages(rows)[0][1:] == (hurt.log_offset, hurt.size), at
        else:  # queue id, flag, times, hosts, topic, properties: nothing in the format covers them
            assert good == [each.log_offset for each in placed], at
        for cut in (hurt.log_offset, hurt.log_offset + at + 1, hurt.log_offset + hurt.size):
            parts = [ByteRange(file, 0, cut), ByteRange(file, cut, file.size_bytes)]
            assert [row for part in parts for row in rows_of(part, look_back_bytes=150)] == rows, (at, cut)


def test_a_body_with_a_wrong_checksum_is_a_row_that_says_so(folder: Path) -> None:
    """Goal: what can be trusted of a damaged record is there, and plain readers do not get it."""
    placed = write_log(folder, map(record, range(5)), file_bytes=FILE_BYTES)
    overwrite(folder, FILE_BYTES, placed[2].log_offset + 88, b"BAD!")
    rows = read_all(folder)
    assert rows[2][:3] == (placed[2].log_offset, b"BAD! 2", "T0")
    assert damages(rows) == [("a body does not have its checksum", placed[2].log_offset, placed[2].size)]
    (file,) = find_log_files([str(folder)])
    scan = RangeScan(ByteRange(file, 0, FILE_BYTES), arrow_schema(["queueOffset"]))
    assert [each for batch in scan.batches() for each in batch.to_pydict()["queueOffset"]] == [0, 1, 3, 4]
    assert [each.log_offset for each in scan.damage] == [placed[2].log_offset]


def test_a_body_that_does_not_inflate_is_damage_too(folder: Path) -> None:
    odd = record(1, sys_flag=SysFlag.COMPRESSED, body=b"no zlib")
    placed = write_log(folder, [record(0), odd, record(2)], file_bytes=FILE_BYTES)
    rows = read_all(folder)
    assert [row[1] for row in rows] == [b"body 0", b"no zlib", b"body 2"]
    assert damages(rows)[0][0].startswith("a body does not inflate")
    assert damages(rows)[0][1:] == (placed[1].log_offset, placed[1].size)
    (file,) = find_log_files([str(folder)])
    plain = RangeScan(ByteRange(file, 0, FILE_BYTES), arrow_schema(["body"]))
    assert [each for batch in plain.batches() for each in batch.to_pydict()["body"]] == [b"body 0", b"body 2"]


def test_the_first_damage_ends_a_read_that_is_to_fail(folder: Path) -> None:
    placed = write_log(folder, map(record, range(6)), file_bytes=FILE_BYTES)
    overwrite(folder, FILE_BYTES, placed[3].log_offset + 4, b"????")
    with pytest.raises(DamagedLogError) as caught:
        read_all(folder, fail_fast=True)
    assert f"{folder}/{0:020d} at log offset {placed[3].log_offset}: no record begins here" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fail_fast", [False, True])
def test_a_torn_tail_is_the_end_whatever_byte_it_is_torn_at(folder: Path, fail_fast: bool) -> None:
    """Goal: what a crash or a running writer leaves behind the last record is no error and no message."""
    placed = write_log(folder, map(record, range(5)), file_bytes=FILE_BYTES)
    last, path = placed[-1], folder / f"{0:020d}"
    content = path.read_bytes()
    for kept in range(last.size):
        path.write_bytes(content[: last.log_offset + kept].ljust(FILE_BYTES, b"\0"))
        rows = read_all(folder, fail_fast=fail_fast)
        good = [row[0] for row in rows if row[3] is None]
        whole_in_spite = bytes(path.read_bytes()) == content or len(good) == 5
        assert good[:4] == [each.log_offset for each in placed[:4]], kept
        assert len(good) == 4 or whole_in_spite
        assert all(reason.startswith("unfinished") for reason, _, _ in damages(rows)), kept


@pytest.mark.parametrize("cut", [0, 1, 50, 400])
def test_a_file_cut_short_in_the_middle_of_the_log_is_told(folder: Path, cut: int) -> None:
    placed = write_log(folder, map(record, range(60)), file_bytes=FILE_BYTES)
    first = [each for each in placed if each.log_offset < FILE_BYTES]
    path = folder / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: first[-1].log_offset + first[-1].size - cut])
    rows = read_all(folder, 1024)
    lost = {each.log_offset for each in first if each.log_offset + each.size > path.stat().st_size}
    assert [row[0] for row in rows if row[3] is None] == [e.log_offset for e in placed if e.log_offset not in lost]
    assert len(damages(rows)) == 1


def test_zeros_inside_the_log_are_told_and_zeros_at_its_end_are_not(folder: Path) -> None:
    placed = write_log(folder, map(record, range(60)), file_bytes=FILE_BYTES)
    (folder / f"{10 * FILE_BYTES:020d}").write_bytes(bytes(FILE_BYTES))  # prepared ahead, as brokers do
    overwrite(folder, FILE_BYTES, placed[3].log_offset, bytes(placed[3].size + placed[4].size))
    rows = read_all(folder, 1024)
    assert damages(rows) == [("zeros where a record should be", placed[3].log_offset, placed[3].size + placed[4].size)]
    assert len(rows) == 60 - 2 + 1


def test_the_map_may_have_what_the_application_set_alone(folder: Path) -> None:
    """Goal: store files are read with the same choice of properties as topics."""
    write_log(
        folder,
        [record(0, properties=encode_properties({"KEYS": "k", "UNIQ_KEY": "u", "price": "7"}))],
        file_bytes=FILE_BYTES,
    )
    for hides, wanted in ((False, {"KEYS", "UNIQ_KEY", "price"}), (True, {"price"})):
        (file,) = find_log_files([str(folder)])
        scan = RangeScan(ByteRange(file, 0, file.size_bytes), arrow_schema(["properties"]))
        if hides:
            scan.hide_system_properties()
        (batch,) = scan.batches()
        assert set(dict(batch.column(0).to_pylist()[0])) == wanted


def test_rows_are_chosen_and_stretches_are_of_no_topic(folder: Path) -> None:
    placed = write_log(folder, map(record, range(40)), file_bytes=FILE_BYTES)
    overwrite(folder, FILE_BYTES, placed[5].log_offset + 4, b"????")
    choice = Choice(
        topics=frozenset({"T1"}), queue_ids=frozenset({0, 1}), queue_offset_low=4, queue_offset_high=30,
        stored_from_ms=3_000, stored_before_ms=25_000, is_filtered=True,
    )  # fmt: skip
    wanted = [n for n in range(40) if n % 2 and n % 3 < 2 and 4 <= n < 25 and n != 5]
    assert [row[1] for row in read_all(folder, choice=choice)] == [b"body %d" % n for n in wanted]


def test_the_chain_is_found_again_from_any_byte(folder: Path) -> None:
    """Goal: the place to begin is exactly the next record, blank included."""
    placed = write_log(folder, map(record, range(80)), file_bytes=FILE_BYTES)
    first = [each.log_offset for each in placed if each.log_offset < FILE_BYTES]
    chained = ChainedFile(folder / f"{0:020d}", 0)
    blank = first[-1] + next(each.size for each in placed if each.log_offset == first[-1])
    for start in range(blank + 1):
        expected = next((at for at in first if at >= start), blank)
        assert chained.chain_at(start, look_back_bytes=180) == expected
    assert chained.chain_at(blank + 1) is None


def test_a_deleted_file_can_be_read_to_its_end_once_it_is_open(folder: Path) -> None:
    write_log(folder, map(record, range(20)), file_bytes=FILE_BYTES)
    (file,) = find_log_files([str(folder)])[:1]
    scan = RangeScan(ByteRange(file, 0, FILE_BYTES), WITH_DAMAGE, batch_bytes=100).batches()
    next(scan)
    Path(file.path).unlink()
    assert sum(batch.num_rows for batch in scan) > 5
    with pytest.raises(FileNotFoundError):
        next(RangeScan(ByteRange(file, 0, FILE_BYTES), WITH_DAMAGE).batches())


def test_a_record_with_a_log_offset_of_elsewhere_is_damage(folder: Path) -> None:
    placed = write_log(folder, map(record, range(4)), file_bytes=FILE_BYTES)
    moved = encode_record(replace(placed[1], log_offset=7))
    overwrite(folder, FILE_BYTES, placed[1].log_offset, moved)
    told = damages(read_all(folder))
    assert told == [("a record says that it lies elsewhere", placed[1].log_offset, placed[1].size)]
