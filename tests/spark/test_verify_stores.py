"""Whole stores verified by many tasks: the report of one pass, and a line for whoever names what is no store."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from rocketq.spark.errors import SparkError
from rocketq.spark.pipelines.verify import verify
from rocketq.store import Store
from rocketq.store.verify import Verifier
from tests.contract.test_store_check import config_of, write_some
from tests.golden.stores import unpack


def test_a_directory_of_apache_is_sound_and_a_flipped_bit_is_not(spark: SparkSession, tmp_path: Path) -> None:
    """Goal: the same findings and figures as `rocketq store check`, with progress to the end."""
    root = unpack("apache-4.9.7-clean", tmp_path).root
    told: list[tuple[int, int]] = []
    report = verify(spark, root, range_bytes=150_000, progress=lambda done, total: told.append((done, total)))
    assert report.ok
    assert told[-1][0] == told[-1][1] > 0
    assert report == Verifier(root).run()
    path = sorted((root / "commitlog").iterdir())[0]
    content = bytearray(path.read_bytes())
    content[100_000] ^= 4
    path.write_bytes(content)
    damaged, one = verify(spark, root, range_bytes=150_000), Verifier(root).run()
    assert not damaged.ok
    assert sorted(map(str, damaged.findings)) == sorted(map(str, one.findings))


def test_a_directory_of_ours_with_files_missing(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with Store.open(config_of(root)) as store:
        write_some(store, 200)
    assert verify(spark, root, range_bytes=10_000).ok
    for path in (root / "consumequeue" / "Topic0" / "0").iterdir():
        path.unlink()
    sorted((root / "commitlog").iterdir())[1].unlink()
    report, one = verify(spark, root, range_bytes=10_000), Verifier(root).run()
    assert sorted(map(str, report.findings)) == sorted(map(str, one.findings))
    assert not report.ok


def test_what_is_no_store_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SparkError, match="is not a directory"):
        verify(spark, tmp_path / "nowhere")
    with pytest.raises(SparkError, match="is not a store"):
        verify(spark, tmp_path)
