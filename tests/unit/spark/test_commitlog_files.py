"""Which files a path means, which ranges are planned, and which files a time lets us skip."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is not installed (it comes with rocketq[spark])")

import itertools

from pyspark.sql.types import LongType, StructField, StructType
from tests.unit.spark.log_writing import record, write_log

from rocketq.spark.commitlog import CommitLogReader
from rocketq.spark.commitlog_files import StoreTimes, find_log_files, plan_ranges
from rocketq.spark.commitlog_options import parse_commitlog
from rocketq.spark.errors import DataLossError, OptionError, SparkError

FILE_BYTES = 2048


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_log(tmp_path / "store" / "commitlog", map(record, range(60)), file_bytes=FILE_BYTES)
    return tmp_path / "store"


def test_store_commitlog_and_file_name_the_same_files(root: Path) -> None:
    files = find_log_files([str(root)])
    assert [file.base for file in files] == list(range(0, FILE_BYTES * len(files), FILE_BYTES))
    assert find_log_files([str(root / "commitlog")]) == files
    assert find_log_files([f"file://{root}"]) == files
    assert find_log_files([str(root.parent / "st*")]) == files
    assert find_log_files([file.path for file in reversed(files)]) == files
    assert find_log_files([str(root), str(root / "commitlog")]) == files


def test_files_know_their_times_and_what_follows(root: Path) -> None:
    files = find_log_files([str(root)])
    assert files[0].first_store_ms == 0
    assert [file.next_base for file in files[:-1]] == [file.base for file in files[1:]]
    assert [file.next_store_ms for file in files[:-1]] == [file.first_store_ms for file in files[1:]]
    assert files[-1].next_base is None


def test_files_prepared_ahead_are_no_part_of_the_log(root: Path) -> None:
    before = find_log_files([str(root)])
    (root / "commitlog" / f"{FILE_BYTES * 50:020d}").write_bytes(bytes(FILE_BYTES))
    (root / "commitlog" / "notes.txt").write_text("not ours")
    assert find_log_files([str(root)]) == before


def test_a_copy_with_another_name_says_itself_where_it_lies(root: Path, tmp_path: Path) -> None:
    second = find_log_files([str(root)])[1]
    copy = tmp_path / "segment.bin"
    copy.write_bytes(Path(second.path).read_bytes())
    assert find_log_files([str(copy)])[0].base == second.base
    copy.write_bytes(b"x" * 500)
    with pytest.raises(SparkError, match="is no log file"):
        find_log_files([str(copy)])


@pytest.mark.parametrize(
    ("path", "text"),
    [("nowhere", "does not exist"), ("", "is no store"), ("hdfs://host/store", "not from hdfs"), ("no*", "nothing")],
)
def test_what_is_no_log_is_told_in_one_line(tmp_path: Path, path: str, text: str) -> None:
    with pytest.raises(SparkError, match=text) as caught:
        find_log_files([path if "://" in path else str(tmp_path / path)])
    assert "\n" not in str(caught.value)


def test_ranges_cover_every_byte_once(root: Path) -> None:
    files = find_log_files([str(root)])
    for range_bytes in (1, 7, 1000, FILE_BYTES, 1 << 30):
        ranges = plan_ranges(files, range_bytes=range_bytes)
        for file in files:
            own = [(part.start, part.end) for part in ranges if part.file == file]
            assert own[0][0] == 0
            assert own[-1][1] == file.size_bytes
            assert all(a[1] == b[0] for a, b in itertools.pairwise(own))


def test_files_of_other_times_are_skipped(root: Path) -> None:
    """Goal: no file that can hold a wanted record is skipped, others are."""
    files = find_log_files([str(root)])
    for low, high in ((0, 5_000), (20_000, 21_000), (59_000, None), (None, 1_000), (300_000, None)):
        times = StoreTimes(low, high)
        kept = {part.file.base for part in plan_ranges(files, times=times, slack_ms=0)}
        for file in files:
            last = file.next_store_ms if file.next_store_ms is not None else 1 << 60
            assert file.first_store_ms is not None
            meets = (high is None or file.first_store_ms < high) and (low is None or last >= low)
            assert (file.base in kept) == meets
    assert len(plan_ranges(files, times=StoreTimes(20_000, 21_000), slack_ms=600_000)) == len(files)


def test_options_are_checked() -> None:
    parsed = parse_commitlog({"paths": '["/a", "/b"]', "mode": "FAILFAST", "maxpartitionbytes": "65536"})
    assert (parsed.paths, parsed.fail_fast, parsed.range_bytes) == (("/a", "/b"), True, 65536)
    for wrong in ({}, {"path": "/a", "mode": "dropmalformed"}, {"path": "/a", "maxPartitionBytes": "1"}):
        with pytest.raises(OptionError):
            parse_commitlog(wrong)
    with pytest.raises(OptionError, match="did you mean maxPartitionBytes"):
        parse_commitlog({"path": "/a", "maxPartitionByte": "5"})


@pytest.mark.parametrize("ignore", ["true", "false"])
def test_files_deleted_after_planning_are_an_error_or_passed(root: Path, ignore: str) -> None:
    """Goal: a broker that deletes old files while they are to be read gives one clear line, or the rest is read."""
    schema = StructType([StructField("queueOffset", LongType())])
    reader = CommitLogReader(schema, {"path": str(root), "ignoreMissingFiles": ignore})
    parts = reader.partitions()
    (root / "commitlog" / f"{0:020d}").unlink()
    if ignore == "false":
        with pytest.raises(DataLossError, match="was deleted after the read was planned"):
            list(reader.read(parts[0]))
    else:
        assert list(reader.read(parts[0])) == []
    assert sum(batch.num_rows for batch in reader.read(parts[1])) > 0
