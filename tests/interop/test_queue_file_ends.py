"""Queues that end exactly where one of their files does: Apache misreads an empty last file, so we must leave none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rocketq.store import Store

from . import apache_recovery, driver, expect, our_messages, ours
from .apache import SMALL_FILES
from .conftest import StartBroker
from .messages import Acknowledged

pytestmark = pytest.mark.interop

VERSIONS = ["4.9.7", "5.3.3"]
FILE_BYTES = int(SMALL_FILES["mappedFileSizeConsumeQueue"])
QUEUE = ("InteropOrdered", 0)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_queue_that_ends_with_its_file_goes_on(
    apache: StartBroker, store_dir: Path, broker_port: int, version: str
) -> None:
    """Goal: no message is added or skipped where a queue file is exactly full."""
    sent = _fill_one_file(store_dir, broker_port)
    assert apache_recovery.empty_queue_files(store_dir) == []
    with apache(version) as broker:
        served = driver.verify(broker, sent)
        more = driver.produce(broker, prefix="Interop", seed=2)
        both = driver.verify(broker, [*sent, *more])
    expect.everything_matches(served, sent)
    assert served.bounds[QUEUE] == (0, len(sent))
    expect.appends_continue(served, more)
    expect.everything_matches(both, [*sent, *more])


@pytest.mark.parametrize("state", ["clean", "killed", "killed-with-point"])
def test_we_remove_an_empty_queue_file(store_dir: Path, broker_port: int, state: str) -> None:
    """Goal: what a kill between the making of a queue file and its first unit left is gone when we close; the test
    above says that Apache then goes on rightly."""
    ours.write_topics(store_dir, our_messages.topics("Interop"))
    point = store_dir / "recovery.rocketq"
    with Store.open(ours.config(store_dir, broker_port)):
        pass
    kept = shutil.copy(point, store_dir.with_name("point"))
    sent = _fill_one_file(store_dir, broker_port)
    unwritten = store_dir / "consumequeue" / QUEUE[0] / str(QUEUE[1]) / f"{FILE_BYTES:020}"
    unwritten.write_bytes(bytes(FILE_BYTES))
    if state != "clean":
        (store_dir / "abort").touch()
        point.unlink()
    if state == "killed-with-point":
        shutil.copy(kept, point)

    with Store.open(ours.config(store_dir, broker_port)) as store:
        expect.everything_matches(ours.settled_view(store, sent), sent)
    ours.check(store_dir)
    assert apache_recovery.empty_queue_files(store_dir) == []


def _fill_one_file(store_dir: Path, port: int) -> list[Acknowledged]:
    ours.write_topics(store_dir, our_messages.topics("Interop"))
    with Store.open(ours.config(store_dir, port)) as store:
        bodies = [f"step {number}".encode() for number in range(FILE_BYTES // 20)]
        return [our_messages.append(store, our_messages.draft("ordered", *QUEUE, body, keys="full")) for body in bodies]
