"""The sizes of files that `rocketq up` chooses."""

from __future__ import annotations

import os
from pathlib import Path

from rocketq.cli.small_files import with_small_files

SMALL = {"mappedFileSizeCommitLog": "134217728", "maxHashSlotNum": "500000", "maxIndexNum": "2000000"}
LOG, INDEX = "commitlog/00000000000000000000", "index/20260101000000000"


def make(root: Path, name: str, size_bytes: int) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).touch()
    os.truncate(root / name, size_bytes)


def test_a_new_store_has_small_files_unless_settings_say_otherwise(tmp_path: Path) -> None:
    """Goal: a development broker takes little of the disk, and what users set counts."""
    assert with_small_files({}, [tmp_path / "new"]) == SMALL
    given = {"mappedFileSizeCommitLog": "67108864", "brokerName": "a"}
    assert with_small_files(given, [tmp_path / "new"]) == {**SMALL, **given}


def test_a_store_keeps_the_sizes_it_has(tmp_path: Path) -> None:
    """Goal: a directory of an earlier release, or of Apache's, opens as before; one of `up` does again."""
    make(tmp_path, LOG, 1 << 30)
    make(tmp_path, INDEX, 420_000_040)
    assert with_small_files({}, [tmp_path]) == {}
    make(tmp_path, LOG, 128 << 20)
    make(tmp_path, INDEX, 42_000_040)
    assert with_small_files({}, [tmp_path]) == SMALL


def test_log_and_index_are_looked_at_each_for_itself(tmp_path: Path) -> None:
    """Goal: a log of a size of the user's does not make the index large at the second start."""
    make(tmp_path, LOG, 1 << 26)
    make(tmp_path, INDEX, 42_000_040)
    found = with_small_files({"mappedFileSizeCommitLog": str(1 << 26)}, [tmp_path])
    assert found == {**SMALL, "mappedFileSizeCommitLog": str(1 << 26)}


def test_a_log_elsewhere_is_looked_at_there(tmp_path: Path) -> None:
    """Goal: storePathCommitLog is where the log's files are."""
    make(tmp_path / "fast", "00000000000000000000", 1 << 30)
    found = with_small_files({"storePathCommitLog": str(tmp_path / "fast")}, [tmp_path / "new"])
    assert "mappedFileSizeCommitLog" not in found


def test_replicas_have_one_size(tmp_path: Path) -> None:
    """Goal: one that begins anew fits to the others."""
    make(tmp_path / "a", LOG, 1 << 30)
    assert "mappedFileSizeCommitLog" not in with_small_files({}, [tmp_path / "a", tmp_path / "b"])
