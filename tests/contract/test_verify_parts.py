"""A directory verified in parts gives the very report of one pass, whatever is wrong with it and however it is cut."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.model import NewMessage
from rocketq.store import Store
from rocketq.store.verify import Verifier, VerifyReport
from rocketq.store.verify_parts import PartReport, PartVerifier, SumVerifier, VerifyPlan
from tests.contract.test_store_check import SHAPE, config_of, write_some
from tests.golden.stores import NAMES, unpack


def in_parts(root: Path, range_bytes: int) -> VerifyReport:
    """As the pipeline does it, in this process; every result goes through its text form."""
    plan = VerifyPlan(root=root)
    total = SumVerifier(plan)
    plan = replace(plan, queue_file_bytes=total.queue_file_bytes)
    total.take_log(_sent(PartVerifier(plan).check_log(task)) for task in total.log_tasks(range_bytes))
    start, end, holes = total.report.log_start, total.report.log_end, total.holes
    total.take_queues(
        _sent(PartVerifier(plan).check_queues(names, total.seen(names), start, holes)) for names in total.queue_tasks(3)
    )
    files = total.index_files()
    return total.take_index(
        _sent(PartVerifier(plan).check_index_file(path, files[:number], start, end, holes))
        for number, path in enumerate(files)
    )


def _sent(part: PartReport) -> PartReport:
    return PartReport.from_json(part.to_json())


def require_same(root: Path, range_bytes: int) -> VerifyReport:
    one, parts = Verifier(root).run(), in_parts(root, range_bytes)
    assert sorted(map(str, parts.findings)) == sorted(map(str, one.findings))
    one.findings, parts.findings = [], []
    assert parts == one
    return one


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("written") / "store"
    with Store.open(config_of(root)) as store:
        write_some(store, 300)
    return root


@pytest.fixture
def directory(written: Path, tmp_path: Path) -> Path:
    shutil.copytree(written, tmp_path / "store")
    return tmp_path / "store"


@pytest.mark.parametrize("range_bytes", [3000, 1 << 15, 1 << 30])
def test_a_sound_directory_is_sound_in_parts(directory: Path, range_bytes: int) -> None:
    report = require_same(directory, range_bytes)
    assert report.records > 300
    assert in_parts(directory, range_bytes).ok


@pytest.mark.parametrize("name", NAMES)
def test_directories_of_real_brokers_are_what_one_pass_says(name: str, tmp_path: Path) -> None:
    require_same(unpack(name, tmp_path).root, 100_000)


@pytest.mark.parametrize("seed", range(40))
def test_random_damage_is_told_the_same(directory: Path, seed: int) -> None:
    """Goal: one bit, some bytes of rubbish or of zeros, in any file of the directory."""
    rng = random.Random(seed)
    files = [path for path in sorted(directory.rglob("*")) if path.is_file() and path.stat().st_size]
    logs = [path for path in files if path.parent.name == "commitlog"]
    path = rng.choice(logs if seed % 2 else files)
    content = bytearray(path.read_bytes())
    used = len(bytes(content).rstrip(b"\0")) or len(content)
    at = rng.randrange(used)
    match seed % 3:
        case 0:
            content[at] ^= 1 << rng.randrange(8)
        case 1:
            count = min(rng.randrange(1, 3000), len(content) - at)
            content[at : at + count] = rng.randbytes(count)
        case _:
            count = min(rng.randrange(1, 3000), len(content) - at)
            content[at : at + count] = bytes(count)
    path.write_bytes(content)
    require_same(directory, rng.choice([2000, 5000, 1 << 15]))


def _second_log_file_gone(root: Path) -> None:
    (root / "commitlog" / f"{SHAPE['segment_bytes']:020d}").unlink()


def _queue_gone(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "Topic1")


def _index_gone(root: Path) -> None:
    shutil.rmtree(root / "index")


def _not_stopped_cleanly(root: Path) -> None:
    (root / "abort").touch()
    _queue_gone(root)


def _point_gone(root: Path) -> None:
    for path in root.glob("*oint*"):
        path.unlink()


def _last_records_bad(root: Path) -> None:
    path = sorted((root / "commitlog").iterdir())[-1]
    content = path.read_bytes()
    used = len(content.rstrip(b"\0"))
    path.write_bytes(content[: used - 30] + bytes(len(content) - used + 30))


@pytest.mark.parametrize(
    "hurt",
    [_second_log_file_gone, _queue_gone, _index_gone, _not_stopped_cleanly, _point_gone, _last_records_bad],
)
@pytest.mark.parametrize("range_bytes", [3000, 1 << 15])
def test_larger_losses_are_told_the_same(directory: Path, hurt: Callable[[Path], None], range_bytes: int) -> None:
    hurt(directory)
    require_same(directory, range_bytes)


def _append(store: Store, topic: str, count: int) -> None:
    for number in range(count):
        message = NewMessage(topic=topic, queue_id=0, body=b"%d" % number * 40)
        assert store.append(message).queue_offset == number


def _deleted(root: Path, *lives: int) -> None:
    """Topic T with so many messages in each of its lives; all but the last one ended by deleting it."""
    with Store.open(config_of(root)) as store:
        for number, count in enumerate(lives):
            if number:
                store.delete_topic("T")
            _append(store, "T", count)
            write_some(store, 20, seed=number)


@pytest.mark.parametrize("lives", [(5, 3), (3, 5), (60, 1), (1, 60), (30, 20, 10), (10, 30, 20), (7, 0), (7, 4, 0)])
@pytest.mark.parametrize("range_bytes", [700, 3000, 1 << 30])
def test_a_topic_that_was_deleted_is_no_damage(tmp_path: Path, lives: tuple[int, ...], range_bytes: int) -> None:
    """Goal: the log keeps the messages of a topic's former lives, whether it was made again or not."""
    _deleted(tmp_path / "store", *lives)
    findings = require_findings(tmp_path / "store", range_bytes)
    assert findings == ([] if lives[-1] else [("note", "queue T/0")])


def test_units_of_the_last_life_that_are_lost_are_told(tmp_path: Path) -> None:
    """Goal: a former life excuses nothing of the present one."""
    _deleted(tmp_path / "store", 8, 5)
    path = tmp_path / "store" / "consumequeue" / "T" / "0" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:60].ljust(SHAPE["queue_file_bytes"], b"\0"))
    assert require_findings(tmp_path / "store", 700) == [("error", "queue T/0")]
    shutil.rmtree(path.parent)
    assert require_findings(tmp_path / "store", 700) == [("error", "queue T/0")]


def test_a_queue_deleted_by_a_real_broker_is_no_damage(tmp_path: Path) -> None:
    """Goal: where no recovery point says so, the table of topics does."""
    root = unpack("apache-4.9.7-clean", tmp_path).root
    topic = next(each.name for each in sorted((root / "consumequeue").iterdir()) if (each / "0").is_dir())
    shutil.rmtree(root / "consumequeue" / topic)
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(f'{{"topicConfigTable":{{"{topic}":{{}}}}}}')
    assert {severity for severity, _ in require_findings(root, 100_000)} == {"error"}
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{}}')
    assert {severity for severity, _ in require_findings(root, 100_000)} == {"note"}


def require_findings(root: Path, range_bytes: int) -> list[tuple[str, str]]:
    require_same(root, range_bytes)
    return [(each.severity.value, each.where) for each in Verifier(root).run().findings]
