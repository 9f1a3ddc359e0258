"""Files named by their start offsets, and the disk operations under them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rocketq.store.disk import Disk, DiskUsage
from rocketq.store.segments import SegmentDirectory, file_name


def test_names_are_twenty_digits() -> None:
    """Goal: Apache's names, which sort as the offsets do."""
    assert file_name(0) == "00000000000000000000"
    assert file_name(1_073_741_824) == "00000000001073741824"


def test_directory_knows_its_files_in_order(tmp_path: Path) -> None:
    """Goal: create, look up, step and remove; what is not a start offset is not ours."""
    files = SegmentDirectory(tmp_path / "log", 4096, Disk())
    files.load()
    assert (files.first, files.last, len(files)) == (None, None, 0)
    for start in (8192, 0, 16384):
        files.create(start, reserve=True)
    assert list(files) == [0, 8192, 16384]
    assert (files.first, files.last) == (0, 16384)
    assert (files.after(0), files.after(5000), files.after(16384)) == (8192, 8192, None)
    assert (files.start_of(8191), files.start_of(8192)) == (4096, 8192)
    assert 8192 in files
    assert 4096 not in files
    assert files.size_of(8192) == 4096
    files.remove(8192)
    for name in ("readme", "123", "0000000000000000000x", "000000000000000000000"):
        (tmp_path / "log" / name).write_bytes(b"")
    again = SegmentDirectory(tmp_path / "log", 4096, Disk())
    again.load()
    assert list(again) == [0, 16384]


def test_iteration_survives_removal(tmp_path: Path) -> None:
    """Goal: deleting while walking is safe."""
    files = SegmentDirectory(tmp_path, 4096, Disk())
    for start in range(0, 5 * 4096, 4096):
        files.create(start, reserve=False)
    for start in files:
        files.remove(start)
    assert len(files) == 0


def test_file_that_exists_is_not_created_again(tmp_path: Path) -> None:
    """Goal: nothing is overwritten by a mistake about what is there."""
    Disk().create(tmp_path / "f", 4096, reserve=True)
    with pytest.raises(FileExistsError):
        Disk().create(tmp_path / "f", 4096, reserve=True)


def test_reserved_file_has_all_its_blocks_and_a_plain_one_none(tmp_path: Path) -> None:
    """Goal: a write into a reserved range cannot hit a full disk; a plain file costs nothing."""
    disk = Disk()
    disk.create(tmp_path / "reserved", 1 << 20, reserve=True)
    disk.create(tmp_path / "plain", 1 << 20, reserve=False)
    assert (tmp_path / "reserved").stat().st_blocks * 512 >= 1 << 20
    assert (tmp_path / "plain").stat().st_blocks == 0
    assert (tmp_path / "plain").stat().st_size == 1 << 20
    disk.reserve(tmp_path / "plain", 0, 8192)
    assert 8192 <= (tmp_path / "plain").stat().st_blocks * 512 < 1 << 20


def test_failed_creation_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a full disk does not leave a half-made file for the next start to trip over."""

    def refuse(handle: int, start: int, count: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="No space"):
        Disk().create(tmp_path / "f", 4096, reserve=True)
    assert list(tmp_path.iterdir()) == []


def test_file_system_without_fallocate_gets_its_blocks_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: reserving keeps what a file holds, wherever it runs."""

    def refuse(handle: int, start: int, count: int) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    disk, path = Disk(), tmp_path / "f"
    disk.create(path, 3 << 20, reserve=False)
    disk.write(path, 5000, b"kept")
    disk.reserve(path, 0, 3 << 20)
    assert path.stat().st_blocks * 512 >= 3 << 20
    assert path.read_bytes()[5000:5004] == b"kept"


@pytest.mark.parametrize("dirty", [(0,), (100,), (4095, 5000), (1 << 20,), ((3 << 20) - 1,), ()])
def test_zeroing_clears_everything_behind_and_nothing_before(tmp_path: Path, dirty: tuple[int, ...]) -> None:
    """Goal: a cut leaves no old byte that could come back, and says how far the dirt reached."""
    disk, path, start = Disk(), tmp_path / "f", 100
    disk.create(path, 3 << 20, reserve=False)
    disk.write(path, 0, b"keep" * 25)
    for at in dirty:
        disk.write(path, at, b"\x01")
    before = path.read_bytes()[:start]
    reach = max([at + 1 - start for at in dirty if at >= start], default=0)
    assert disk.zero_from(path, start) == reach
    assert path.read_bytes() == before + bytes((3 << 20) - start)


def test_data_ranges_cover_all_data(tmp_path: Path) -> None:
    """Goal: looking for records in a sparse file may skip holes, never data."""
    disk, path = Disk(), tmp_path / "f"
    disk.create(path, 8 << 20, reserve=False)
    assert disk.data_ranges(path, 0) == []
    disk.write(path, 5 << 20, b"data")
    ranges = disk.data_ranges(path, 0)
    assert any(low <= 5 << 20 and high >= (5 << 20) + 4 for low, high in ranges)
    assert disk.data_ranges(path, 8 << 20) == []


def test_replaced_file_is_old_or_new_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """Goal: state files are replaced whole."""
    disk = Disk()
    disk.replace(tmp_path / "sub" / "state", b"one")
    disk.replace(tmp_path / "sub" / "state", b"two")
    assert (tmp_path / "sub" / "state").read_bytes() == b"two"
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["state"]


def test_used_ratio_counts_what_this_process_could_have() -> None:
    """Goal: blocks kept for root are neither used nor usable, as in 5.x."""
    assert DiskUsage(100, 45, 45).used_ratio == 0.5
    assert DiskUsage(0, 0, 0).used_ratio == 1.0


def test_short_file_is_extended_with_zeros(tmp_path: Path) -> None:
    """Goal: a file that was cut short gets its length back and keeps what it has."""
    (tmp_path / "f").write_bytes(b"half")
    Disk().extend(tmp_path / "f", 10)
    assert (tmp_path / "f").read_bytes() == b"half" + bytes(6)
