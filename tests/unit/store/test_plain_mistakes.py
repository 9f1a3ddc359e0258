"""What a newcomer gets wrong is said in words."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.store.kit import StagedDisk, fill, message, open_store, small_config

from rocketq.errors import ConfigError, LocalProtocolError, StoreClosedError, StoreError
from rocketq.protocol.properties import encode_properties
from rocketq.store import AppendStatus, FlushType, Store, StoreConfig
from rocketq.store.verify import Verifier


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"segment_bytes": 64e6}, "mappedFileSizeCommitLog must be a number"),
        ({"segment_bytes": "1MB"}, "mappedFileSizeCommitLog must be a number"),
        ({"flush_interval_ms": -1}, "must not be negative"),
        ({"flush_type": "sync"}, "flushDiskType='sync'"),
        ({"index_enabled": "yes"}, "must be true or false"),
        ({"segment_bytes": 1 << 20}, "maxMessageSize 4194304 must be below mappedFileSizeCommitLog 1048576"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_refused_by_name(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        StoreConfig(root=tmp_path, **given)


def test_the_flush_type_may_be_given_by_its_name(tmp_path: Path) -> None:
    assert small_config(tmp_path, flush_type="SYNC_FLUSH").flush_type is FlushType.SYNC_FLUSH


def test_a_path_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes a StoreConfig"):
        Store.open(str(tmp_path))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", [{"queue_id": 0.0}, {"queue_id": True}, {"queue_id": "0"}, {"body": None}, {"topic": None}]
)
def test_a_message_of_wrong_types_is_illegal(tmp_path: Path, given: dict[str, Any]) -> None:
    """Goal: nothing is stored under a name that only Python takes for the right one."""
    store = open_store(tmp_path)
    assert store.append(message(**given)).status is AppendStatus.MESSAGE_ILLEGAL
    assert len(store.queues) == 0
    store.close()


@pytest.mark.parametrize(
    ("given", "says"), [({"a": 5}, "are text"), ({"": "x"}, "needs a name"), ({"a\x01": "x"}, "separators")]
)
def test_properties_of_wrong_kinds_are_refused_in_words(given: dict[str, Any], says: str) -> None:
    with pytest.raises(LocalProtocolError, match=says):
        encode_properties(given)


def test_a_closed_store_answers_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.close()
    for ask in (store.max_offset, store.min_offset):
        with pytest.raises(StoreClosedError):
            ask("T", 0)
    with pytest.raises(StoreClosedError):
        store.offset_by_time("T", 0, 1)
    with pytest.raises(StoreClosedError):
        store.earliest_store_ms()


def test_no_room_at_opening_names_the_file_and_the_settings(tmp_path: Path) -> None:
    disk = StagedDisk()
    disk.fail("create", part="commitlog")
    with pytest.raises(StoreError, match="mappedFileSizeCommitLog"):
        open_store(tmp_path, disk=disk)


def test_a_log_that_lost_its_end_says_so(tmp_path: Path) -> None:
    """Goal: the recovery point knows what there was."""
    store = open_store(tmp_path)
    fill(store, 40)
    end, files = store.log_end, list(store.log.files)
    store.close()
    os.unlink(tmp_path / "commitlog" / f"{files[-1]:020d}")
    report = Verifier(tmp_path).run()
    assert any("its end is lost" in finding.what for finding in report.findings)
    again = open_store(tmp_path)
    assert any(f"the log ended at {end}" in note for note in again.report.notes)
    assert again.read("T", 0, 0).count > 0
    again.close()


def test_a_log_that_lost_its_start_says_so(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    fill(store, 40)
    files = list(store.log.files)
    store.close()
    os.unlink(tmp_path / "commitlog" / f"{files[0]:020d}")
    assert not Verifier(tmp_path).run().ok
    again = open_store(tmp_path)
    assert any("the log started at 0" in note for note in again.report.notes)
    again.close()


def test_keys_are_found_by_time_after_a_cut(tmp_path: Path) -> None:
    """Goal: an index file that was cut still knows when its last message was stored."""
    store = open_store(tmp_path, index_units=1_000)
    fill(store, 20, KEYS="k")
    offset = store.read("T", 0, 18, count_max=1)
    store.close()
    last = int.from_bytes(offset.records[28:36], "big")
    path = tmp_path / "commitlog" / f"{last - last % store.config.segment_bytes:020d}"
    os.truncate(path, last % store.config.segment_bytes)
    again = open_store(tmp_path, index_units=1_000)
    stored_ms = again.store_ms_of("T", 0, 17)
    assert len(again.query("T", "k", count_max=64, begin_ms=stored_ms, end_ms=stored_ms).records) == 18
    again.close()
    assert [f.what for f in Verifier(tmp_path).run().findings if f.where.startswith("index")] == []


def test_an_unfinished_rebuild_leaves_one_empty_index_file(tmp_path: Path) -> None:
    """Goal: closing before the rebuild ends costs no disk space each time, and is no damage."""
    store = open_store(tmp_path, index_units=1_000)
    fill(store, 20, KEYS="k")
    store.close()
    shutil.rmtree(tmp_path / "index")
    for _ in range(3):
        open_store(tmp_path, index_units=1_000).close()
        assert len(list((tmp_path / "index").iterdir())) == 1
    report = Verifier(tmp_path).run()
    assert report.ok
    assert any("still to be indexed" in finding.what for finding in report.findings)
    again = open_store(tmp_path, index_units=1_000)
    again.rebuild_index()
    assert len(again.query("T", "k", count_max=64).records) == 20
    again.close()
    assert Verifier(tmp_path).run().findings == []


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (lambda store: store.read(5, 0, 0), "topic must be a str, not 5"),
        (lambda store: store.read("T", "0", 0), "queue_id must be an int, not '0'"),
        (lambda store: store.read("T", 0, None), "queue_offset must be an int, not None"),
        (lambda store: store.read("T", 0, 0, count_max=1.5), "count_max must be an int, not 1.5"),
        (lambda store: store.read("T", 0, 0, bytes_max="1k"), "bytes_max must be an int, not '1k'"),
        (lambda store: store.read("T", True, 0), "queue_id must be an int, not True"),
        (lambda store: store.query(None, "k"), "topic must be a str, not None"),
        (lambda store: store.query("T", b"k"), "key must be a str, not b'k'"),
        (lambda store: store.query("T", "k", begin_ms="now"), "begin_ms must be an int, not 'now'"),
        (lambda store: store.message_at("0"), "log_offset must be an int, not '0'"),
        (lambda store: store.message_by_id(7), "message_id must be a str, not 7"),
        (lambda store: store.offset_by_time("T", 0, 1.0), "time_ms must be an int, not 1.0"),
        (lambda store: store.max_offset("T", None), "queue_id must be an int, not None"),
    ],
)
def test_questions_of_wrong_types_are_told_by_name(tmp_path: Path, ask: Callable[[Any], Any], says: str) -> None:
    """Goal: whoever mixes up two arguments reads which one it was."""
    with open_store(tmp_path) as store:
        store.append(message())
        with pytest.raises(TypeError, match=re.escape(says)):
            ask(store)


@pytest.mark.parametrize("given", [{"count_max": -1}, {"bytes_max": -1}])
def test_a_negative_count_is_no_count(tmp_path: Path, given: dict[str, int]) -> None:
    with open_store(tmp_path) as store, pytest.raises(ValueError, match="must not be negative"):
        store.read("T", 0, 0, **given)  # type: ignore[arg-type]
