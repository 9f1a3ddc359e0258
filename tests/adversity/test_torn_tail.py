"""Files cut, zeroed or overwritten at every byte near their end, and power cuts that tear them sector by sector.

Nothing that was whole may be lost, nothing that is torn may be served. Directories are tiny and lie in memory, so that
thousands of openings are cheap.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rocketq.kernel import compiled
from rocketq.store import AppendStatus, Store, StoreConfig
from rocketq.testing.tearing_disk import TearingDisk

from . import raw_store
from .raw_store import RawRecord
from .stores import await_index, batch, message, read_queue, small_config, sync_config, verify_keys

LAST_BYTES = 4096
TOPICS = ("A", "B")


def tiny_config(root: Path) -> StoreConfig:
    return small_config(
        root,
        segment_bytes=8192,
        queue_file_bytes=200,
        index_slots=10,
        index_units=40,
        message_bytes_max=4000,
    )


def fill_tiny(store: Store, first: int, count: int) -> None:
    for number in range(first, first + count):
        result = store.append(message(number, topic=TOPICS[number % 2], queue_id=0))
        assert result.status is AppendStatus.OK, result.reason


@dataclass(frozen=True)
class Image:
    """A directory in memory: written out for one test, damaged, opened, dropped."""

    config: StoreConfig
    files: dict[str, bytes]
    records: tuple[RawRecord, ...]

    @classmethod
    def take(cls, config: StoreConfig) -> Image:
        paths = [path for path in sorted(config.root.rglob("*")) if path.is_file()]
        files = {str(path.relative_to(config.root)): path.read_bytes() for path in paths}
        return cls(config, files, tuple(raw_store.walk(config)))

    def write(self, root: Path, name: str, content: bytes) -> StoreConfig:
        """The directory with one file's content replaced."""
        shutil.rmtree(root, ignore_errors=True)
        made = set()
        for each, data in (self.files | {name: content}).items():
            directory, _, _ = each.rpartition("/")
            if directory not in made:
                os.makedirs(root / directory, exist_ok=True)
                made.add(directory)
            handle = os.open(f"{root}/{each}", os.O_CREAT | os.O_WRONLY, 0o644)
            os.write(handle, data)
            os.close(handle)
        return replace(self.config, root=root)

    @property
    def log_name(self) -> str:
        return f"commitlog/{self.records[-1].log_offset // 8192 * 8192:020d}"

    @property
    def log_base(self) -> int:
        return self.records[-1].log_offset // 8192 * 8192

    def named(self, prefix: str) -> list[str]:
        return [name for name in self.files if name.startswith(prefix)]


@pytest.fixture(scope="module", params=["no recovery point", "recovery point before", "recovery point inside"])
def image(request: pytest.FixtureRequest, fast_dir: Path) -> Image:
    """A killed store whose last log file has a bit more than 4 KiB in it, with a recovery point here or there."""
    config = tiny_config(fast_dir / f"tiny-{request.param.replace(' ', '-')}")
    store = Store.open(config, services=False)
    point_at = {"recovery point before": 5000, "recovery point inside": 8192 + 3000}.get(request.param, 1 << 30)
    number = 0
    while store.log_end < 8192 + 4600:
        fill_tiny(store, number, 1)
        number += 1
        if store.log_end >= point_at:
            store.save_recovery_point()
            point_at = 1 << 30
    assert store.log_end < 2 * 8192
    store.flush()
    taken = Image.take(config)
    store.close()
    shutil.rmtree(config.root)
    return taken


def served(store: Store) -> dict[int, RawRecord]:
    """By log offset, everything that all queues serve."""
    return {record.log_offset: record for topic in TOPICS for record in read_queue(store, topic, 0)}


def reopen_and_ask(config: StoreConfig, image: Image, whole: Iterable[RawRecord], *, again: bool) -> None:
    """All of `whole` and nothing else is served; a new message gets the next offset; a second opening agrees."""
    expected = {record.log_offset: record.data for record in whole}
    for _ in range(2 if again else 1):
        with Store.open(config, services=False) as store:
            assert {at: record.data for at, record in served(store).items()} == expected
            for at in expected:
                assert store.message_at(at) is not None
            for record in image.records:
                if record.log_offset not in expected:
                    found = store.message_at(record.log_offset)
                    assert found is None or found.body != record.body, "a torn record is served by id"
            end = store.max_offset("A", 0)
            assert end == sum(record.topic == "A" for record in whole)
            result = store.append(message(999, topic="A", queue_id=0))
            assert (result.status, result.queue_offset) == (AppendStatus.OK, end)
            new = raw_store.record_at(config, result.log_offset)
            expected[new.log_offset] = new.data
            whole = [*whole, new]
            image = replace(image, records=())
            assert store.message_at(new.log_offset) is not None


def damaged(content: bytes, at: int, written: int, kind: str) -> bytes:
    if kind == "cut":
        return content[:at]
    if kind == "zeros":
        return content[:at].ljust(len(content), b"\0")
    garbage = random.Random(at).randbytes(written - at)
    return (content[:at] + garbage).ljust(len(content), b"\0")


def bytes_of(image: Image, step: int = 1) -> range:
    """Places in the last 4 KiB of the log: each for the compiled kernel and a plain crash, else fewer."""
    written = image.records[-1].end - image.log_base
    step *= (1 if compiled else 5) * (1 if "recovery.rocketq" not in image.files else 7)
    return range(written - LAST_BYTES, written, step)


@pytest.mark.parametrize("kind", ["cut", "zeros"])
def test_the_log_may_end_at_any_byte_of_its_last_4_kib(image: Image, kind: str, work_dir: Path) -> None:
    """Goal: whatever byte the file is good up to, exactly the records that end there or before are served. (With a
    recovery point every seventh byte; with the interpreted kernel a fifth of that.)"""
    content, written = image.files[image.log_name], image.records[-1].end - image.log_base
    for at in bytes_of(image):
        torn = damaged(content, at, written, kind)
        config = image.write(work_dir / "store", image.log_name, torn)
        reopen_and_ask(config, image, whole_in(image, torn), again=at % 32 == 0)


def test_garbage_may_start_anywhere_in_the_last_4_kib_of_the_log(image: Image, work_dir: Path) -> None:
    """Goal: as above. Nothing covers the properties of a record, so the one where the garbage starts may be served with
    other properties, but never with another body. (Every third byte; with a recovery point or interpreted, fewer.)"""
    content, written = image.files[image.log_name], image.records[-1].end - image.log_base
    for at in bytes_of(image, 3):
        torn = damaged(content, at, written, "garbage")
        config = image.write(work_dir / "store", image.log_name, torn)
        whole = whole_in(image, torn)
        with Store.open(config, services=False) as store:
            found = served(store)
            assert {record.log_offset for record in whole} <= found.keys()
            for record in image.records:
                if record.log_offset in found:
                    assert found.pop(record.log_offset).body == record.body
            assert not found, "garbage was taken for a record"


def whole_in(image: Image, torn: bytes) -> list[RawRecord]:
    """The records that a damaged last log file still holds, and all those of earlier files."""
    padded = torn.ljust(len(image.files[image.log_name]), b"\0")
    return [
        record
        for record in image.records
        if record.log_offset < image.log_base or padded[record.log_offset - image.log_base :].startswith(record.data)
    ]


def test_one_wrong_byte_anywhere_in_the_last_4_kib_of_the_log_costs_one_message_at_most(
    image: Image, work_dir: Path
) -> None:
    """Goal: the others are served; of the one that was hit, a wrong body never is. (With a recovery point every seventh
    byte; with the interpreted kernel a fifth of that.)"""
    content = image.files[image.log_name]
    for at in bytes_of(image):
        wrong = content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :]
        config = image.write(work_dir / "store", image.log_name, wrong)
        spared = {
            record.log_offset: record.data
            for record in image.records
            if not record.log_offset <= image.log_base + at < record.end
        }
        (victim,) = [record for record in image.records if record.log_offset not in spared]
        with Store.open(config, services=False) as store:
            found = served(store)
            hit = found.pop(victim.log_offset, None)
            assert hit is None or hit.body == victim.body, f"a wrong body is served for a flip at {at}"
            assert {each: record.data for each, record in found.items()} == spared, f"flip at {at}"
            result = store.append(message(999, topic="A", queue_id=0))
            assert result.status is AppendStatus.OK
            given = [record.queue_offset for record in found.values() if record.topic == "A"]
            assert result.queue_offset > max(given)


@pytest.mark.parametrize("kind", ["cut", "zeros", "garbage"])
def test_queue_files_may_end_at_any_byte(image: Image, kind: str, work_dir: Path) -> None:
    """Goal: the log has everything, so a killed store's queues are made right wherever they were torn."""
    names = image.named("consumequeue/")
    assert len(names) >= 4
    for name in names:
        content = image.files[name]
        for at in range(0, len(content), 3 if compiled else 15):
            config = image.write(work_dir / "store", name, damaged(content, at, len(content), kind))
            reopen_and_ask(config, image, image.records, again=at % 32 == 0)


@pytest.mark.parametrize("kind", ["cut", "zeros", "garbage"])
def test_index_files_may_end_at_any_byte(image: Image, kind: str, work_dir: Path) -> None:
    """Goal: a killed store finds every key again, wherever its index files were torn."""
    names = image.named("index/")
    assert len(names) >= 2
    for name in (names[0], names[-1]):
        content = image.files[name]
        for at in range(0, len(content), 13):
            config = image.write(work_dir / "store", name, damaged(content, at, len(content), kind))
            with Store.open(config) as store:
                await_index(store)
                verify_keys(store, image.records)
            raw_store.check_index(config, list(image.records), set())


# Power cuts


@dataclass
class Cut:
    """What a restart finds, and what had been promised by then."""

    root: Path
    promised: list[int]


@dataclass
class Cutter:
    """Cuts the power at random steps of the disk, without the store noticing: it goes on, its copies do not."""

    disk: TearingDisk
    into: Path
    source: random.Random
    one_in: int
    promised: list[int] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)

    def on_step(self, _name: str, _path: Path) -> None:
        if self.source.randrange(self.one_in) == 0:
            self.cut()

    def cut(self) -> None:
        self.into.mkdir(exist_ok=True)
        root = self.into / str(len(self.cuts))
        self.disk.cut_power(root, self.source.randrange(1 << 30))
        self.cuts.append(Cut(root, list(self.promised)))


def power_config(root: Path, **given: object) -> StoreConfig:
    """Slots of an index file lie in several sectors, and so do the records of a log file."""
    sizes = {"segment_bytes": 16384, "queue_file_bytes": 200, "index_slots": 600, "index_units": 60}
    return sync_config(root, **(sizes | {"message_bytes_max": 8000} | given))


def write_and_cut(config: StoreConfig, cutter: Cutter, count: int, *, first: int = 0) -> None:
    """Append with promises noted, a recovery point now and then, and a clean stop at the end: cuts hit all of it."""
    source = cutter.source
    cutter.disk.on_step = cutter.on_step
    store = Store.open(config, disk=cutter.disk, services=False)
    number = first
    while number < first + count:
        topic, queue_id = TOPICS[source.randrange(2)], source.randrange(2)
        if source.randrange(6) == 0:
            result = store.append_batch(batch(number, 4, topic=topic, queue_id=queue_id))
            number += 4
        else:
            result = store.append(message(number, topic=topic, queue_id=queue_id))
            number += 1
        assert result.status is AppendStatus.OK, result.reason
        cutter.promised += result.log_offsets
        if source.randrange(25) == 0:
            store.save_recovery_point()
    store.close()
    cutter.disk.on_step = None


def judge(config: StoreConfig, promised: Iterable[int], written: dict[int, RawRecord]) -> None:
    """Every promised message is served, by queue, id and key; nothing is served that was not written."""
    with Store.open(config) as store:
        await_index(store)
        found = {}
        for queue in store.queues:
            for record in read_queue(store, queue.topic, queue.queue_id):
                assert record.log_offset in written, f"nobody wrote the record at {record.log_offset}"
                assert record.data == written[record.log_offset].data, f"the record at {record.log_offset} is torn"
                found[record.log_offset] = record
        missing = [at for at in promised if at not in found]
        assert not missing, (
            f"{len(missing)} promised messages are gone, the first at {missing[0]}: {store.report.notes}"
        )
        for at in promised:
            assert store.message_at(at) is not None
        keys = {key: record for record in found.values() for key in record.keys if key.startswith("uniq-")}
        for key, record in keys.items():
            assert [one.log_offset for one in store.query(record.topic, key).records] == [record.log_offset]
        taken = {(*record.queue, record.queue_offset) for record in found.values()}
        for topic, queue_id in sorted({record.queue for record in found.values()}):
            end = store.max_offset(topic, queue_id)
            assert end > max(each[2] for each in taken if each[:2] == (topic, queue_id))
            result = store.append(message(5000, topic=topic, queue_id=queue_id))
            assert (result.status, result.queue_offset) == (AppendStatus.OK, end)


@contextmanager
def tearing(root: Path, sector_bytes: int) -> Iterator[TearingDisk]:
    disk = TearingDisk(root, sector_bytes=sector_bytes)
    try:
        yield disk
    finally:
        disk.close()


@pytest.mark.parametrize("sector_bytes", [512, 4096])
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 22])
def test_power_cuts_take_no_promised_message(work_dir: Path, seed: int, sector_bytes: int) -> None:
    """Goal: under SYNC_FLUSH an acknowledged message is on disk: whichever sectors and names a cut at a random step
    loses, it is there after the restart, and nothing torn is."""
    config = power_config(work_dir / "store")
    with tearing(config.root, sector_bytes) as disk:
        cutter = Cutter(disk, work_dir / "cuts", random.Random(seed), one_in=25)
        write_and_cut(config, cutter, 120)
    written = {record.log_offset: record for record in raw_store.walk(config)}
    assert len(cutter.cuts) >= 5
    for cut in cutter.cuts:
        judge(replace(config, root=cut.root), cut.promised, written)


@pytest.mark.parametrize("seed", range(4))
def test_power_cuts_while_a_cut_is_being_mended_take_no_promised_message(work_dir: Path, seed: int) -> None:
    """Goal: recovery may itself be cut off anywhere; the next one still finds everything."""
    config = power_config(work_dir / "store")
    with tearing(config.root, 512) as disk:
        cutter = Cutter(disk, work_dir / "cuts", random.Random(seed), one_in=60)
        write_and_cut(config, cutter, 80)
    written = {record.log_offset: record for record in raw_store.walk(config)}
    for number, cut in enumerate(cutter.cuts):
        mending = replace(config, root=cut.root)
        with tearing(cut.root, 512) as disk:
            second = Cutter(disk, work_dir / f"again-{number}", random.Random(seed), one_in=6)
            disk.on_step = second.on_step
            Store.open(mending, disk=disk, services=False).close()
            disk.on_step = None
        for again in second.cuts:
            judge(replace(config, root=again.root), cut.promised, written)


@pytest.mark.parametrize("seed", range(3))
def test_power_cuts_under_async_flush_take_no_flushed_message(work_dir: Path, seed: int) -> None:
    """Goal: what flush() covered is as safe as under SYNC_FLUSH; of the rest nothing torn is served."""
    config = small_config(work_dir / "store", segment_bytes=16384, queue_file_bytes=200, message_bytes_max=8000)
    source = random.Random(seed)
    with tearing(config.root, 512) as disk:
        store = Store.open(config, disk=disk, services=False)
        cutter = Cutter(disk, work_dir / "cuts", source, one_in=1)
        waiting: list[int] = []
        for number in range(150):
            waiting += store.append(message(number, topic=TOPICS[number % 2], queue_id=0)).log_offsets
            if source.randrange(12) == 0:
                store.flush()
                cutter.promised += waiting
                waiting.clear()
            if source.randrange(12) == 0:
                cutter.cut()
        store.close()
    written = {record.log_offset: record for record in raw_store.walk(config)}
    assert len(cutter.cuts) >= 5
    for cut in cutter.cuts:
        judge(replace(config, root=cut.root), cut.promised, written)


def test_a_power_cut_is_noticed_when_the_disk_only_pretends_to_sync(work_dir: Path) -> None:
    """Goal: the tests above can fail: with a disk whose log syncs do nothing, promised messages are lost."""

    class Liar(TearingDisk):
        def sync(self, path: Path) -> None:
            if path.parent.name != "commitlog":
                super().sync(path)

    config = power_config(work_dir / "store")
    disk = Liar(config.root)
    cutter = Cutter(disk, work_dir / "cuts", random.Random(1), one_in=40)
    write_and_cut(config, cutter, 60)
    disk.close()
    written = {record.log_offset: record for record in raw_store.walk(config)}
    last = cutter.cuts[-1]
    with pytest.raises(AssertionError, match=r"gone|torn"):
        judge(replace(config, root=last.root), last.promised, written)


# The tearing disk itself


def test_a_tearing_disk_keeps_what_was_synced_and_may_lose_the_rest(work_dir: Path) -> None:
    """Goal: synced sectors and names stay, unsynced ones are old or new, each sector by itself, and both happen."""
    root = work_dir / "disk"
    with tearing(root, 512) as disk:
        disk.create(root / "data", 2048, reserve=True)
        disk.write(root / "data", 0, b"1" * 2048)
        disk.sync(root / "data")
        disk.write(root / "data", 512, b"2" * 1024)
        disk.replace(root / "state", b"old")
        (root / "unsynced").write_bytes(b"x")
        (root / "state").replace(root / "renamed")
        seen = set()
        for seed in range(40):
            target = work_dir / f"cut-{seed}"
            disk.cut_power(target, seed)
            data = (target / "data").read_bytes()
            assert (data[:512], data[1536:]) == (b"1" * 512, b"1" * 512)
            sectors = data[512], data[1024]
            assert set(data[512:1024]) == {sectors[0]}
            seen.add(
                (sectors, (target / "unsynced").exists(), (target / "state").exists(), (target / "renamed").exists())
            )
        assert {sectors for sectors, *_ in seen} == {(a, b) for a in b"12" for b in b"12"}
        assert {exists for _, exists, *_ in seen} == {True, False}
        assert {state for _, _, state, _ in seen} == {True, False}


def test_a_tearing_disk_gives_the_same_copy_for_the_same_seed(work_dir: Path) -> None:
    """Goal: a failure can be looked at again."""
    config = power_config(work_dir / "store")
    with tearing(config.root, 512) as disk, Store.open(config, disk=disk, services=False) as store:
        for number in range(20):
            store.append(message(number, topic="A", queue_id=0), wait=False)
        copies = []
        for name in ("one", "two"):
            disk.cut_power(work_dir / name, 7)
            paths = sorted(path for path in (work_dir / name).rglob("*") if path.is_file())
            copies.append([(str(path.relative_to(work_dir / name)), path.read_bytes()) for path in paths])
    assert copies[0] == copies[1]
