"""Manifests: whole or not there, the first one counts, and a crash at any step of a commit is made good."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed (it comes with rocketq[spark])")

from rocketq.client.blocking.sender import HalfHandle
from rocketq.errors import RocketQError
from rocketq.protocol.flags import TransactionState
from rocketq.spark.errors import SparkError
from rocketq.spark.exactly_once import Batch, Halves, abort_batch, commit_batch
from rocketq.spark.manifest import KEPT_BATCHES, Manifest, ManifestFolder, describe_handles

QUERY = "0b4f7c2e-1"


def handle(number: int, broker: str = "a") -> HalfHandle:
    return HalfHandle(broker, number, 100 * number)


def manifest(batch: int, *numbers: int) -> Manifest:
    handles = tuple(handle(number, "ab"[number % 2]) for number in numbers)
    return Manifest(QUERY, batch, "g", False, handles, len(handles))


def test_a_manifest_is_found_as_it_was_put_down(tmp_path: Path) -> None:
    folder = ManifestFolder(tmp_path / "new" / "folder")
    assert folder.find(QUERY, 3) is None
    made = folder.decide(manifest(3, 1, 2, 3))
    found = ManifestFolder(tmp_path / "new" / "folder").find(QUERY, 3)
    assert found == made
    assert found is not None
    assert set(found.handles) == {handle(1, "b"), handle(2), handle(3, "b")}
    assert [path.name for path in (tmp_path / "new" / "folder" / QUERY).iterdir()] == ["3.json"]


def test_the_first_manifest_counts(tmp_path: Path) -> None:
    """Goal: a driver that was thought dead and its successor come to the same decision."""
    folder = ManifestFolder(tmp_path)
    first = folder.decide(manifest(3, 1, 2))
    assert ManifestFolder(tmp_path).decide(manifest(3, 7, 8)) == first


def test_settled_manifests_are_small_and_old_ones_go(tmp_path: Path) -> None:
    folder = ManifestFolder(tmp_path)
    for batch in (1, 2, KEPT_BATCHES + 1):
        folder.settle(folder.decide(manifest(batch, 1, 2)))
    assert folder.find(QUERY, 1) is None
    kept = folder.find(QUERY, 2)
    assert kept is not None
    assert (kept.is_settled, kept.handles, kept.count) == (True, (), 2)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format":2}', '{"format":1,"state":"decided","halves":[1]}'])
def test_a_damaged_manifest_is_an_error_and_stays(tmp_path: Path, text: str) -> None:
    """Goal: nobody decides a second time because the first decision cannot be read."""
    folder = ManifestFolder(tmp_path)
    folder.decide(manifest(3, 1))
    path = tmp_path / QUERY / "3.json"
    path.write_text(text)
    with pytest.raises(SparkError, match="cannot be read"):
        folder.find(QUERY, 3)
    assert path.read_text() == text


def test_a_folder_that_cannot_be_written_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SparkError, match="cannot be written"):
        ManifestFolder(tmp_path / "file").decide(manifest(1, 1))
    with pytest.raises(SparkError, match="no id of a query"):
        ManifestFolder(tmp_path).find("../x", 1)


def test_halves_travel_packed() -> None:
    halves = Halves()
    handles = [handle(number, "ab"[number % 2]) for number in range(5)]
    for each in handles:
        halves.add(each)
    assert sorted(halves.handles()) == sorted(handles)
    assert len(halves) == 5


def test_every_missing_half_is_named() -> None:
    failures = {handle(number): RocketQError("gone at log offset 5") for number in (1, 2, 3, 7)}
    failures[handle(9, "b")] = RocketQError("away")
    assert describe_handles(failures) == (
        "a: half messages at queue offsets 1-3, 7: gone at log offset ...; b: half messages at queue offsets 9: away"
    )


# Crashes


class Crash(Exception):
    pass


class Steps:
    """Counts what is done to the world, and crashes before or after the step it was told."""

    def __init__(self, crash_at: float = 1e9) -> None:
        self.crash_at = crash_at
        self.count = 0.0

    def before(self) -> None:
        self.count += 0.5
        if self.count == self.crash_at:
            raise Crash

    after = before


class Broker:
    """Settles a half once, as ours does."""

    def __init__(self) -> None:
        self.halves: dict[HalfHandle, str] = {}
        self.outcomes: dict[HalfHandle, TransactionState] = {}
        self.visible: list[str] = []

    def send(self, text: str) -> HalfHandle:
        made = handle(len(self.halves))
        self.halves[made] = text
        return made


class Ends:
    def __init__(self, broker: Broker, steps: Steps) -> None:
        self._broker, self._steps = broker, steps

    def end_all(
        self, group: str, handles: Iterable[HalfHandle], state: TransactionState
    ) -> dict[HalfHandle, RocketQError]:
        failures = {}
        for each in handles:
            self._steps.before()
            before = self._broker.outcomes.get(each)
            if each not in self._broker.halves or before not in (None, state):
                failures[each] = RocketQError("refused")
            elif before is None:
                self._broker.outcomes[each] = state
                if state is TransactionState.COMMIT:
                    self._broker.visible.append(self._broker.halves[each])
            self._steps.after()
        return failures


class Folder(ManifestFolder):
    def __init__(self, root: Path, steps: Steps) -> None:
        super().__init__(root)
        self._steps = steps

    def decide(self, manifest: Manifest) -> Manifest:
        self._steps.before()
        found = super().decide(manifest)
        self._steps.after()
        return found

    def settle(self, manifest: Manifest) -> None:
        self._steps.before()
        super().settle(manifest)
        self._steps.after()


ROWS = ["r0", "r1", "r2"]


def run(broker: Broker, root: Path, steps: Steps, batch: int, rows: list[str]) -> None:
    """A batch as Spark runs it: a task that sends, and the driver; a commit that raises is aborted."""
    sent = []
    for text in rows:
        steps.before()
        sent.append(broker.send(text))
        steps.after()
    ends, folder = Ends(broker, steps), Folder(root, steps)
    commit_batch(Batch(QUERY, batch, "g"), sent, folder, ends)


def crashes(tmp_path: Path, rounds: int) -> int:
    """How many half steps a commit has."""
    steps = Steps()
    run(Broker(), tmp_path / "dry", steps, 0, ROWS)
    return round(steps.count * 2) * rounds


@pytest.mark.parametrize("again", [0, 1])
def test_a_crash_at_any_step_leaves_every_row_visible_once(tmp_path: Path, again: int) -> None:
    """Goal: however often the driver dies, and wherever, the batch is there once when it is done."""
    total = crashes(tmp_path, 1)
    assert total > 15
    plans = itertools.product(range(1, total + 1), repeat=again + 1)
    for number, plan in enumerate(plans):
        broker, root = Broker(), tmp_path / str(number)
        for at in plan:
            with contextlib.suppress(Crash):
                run(broker, root, Steps(at / 2), 0, ROWS)
            assert len(set(broker.visible)) == len(broker.visible)
        run(broker, root, Steps(), 0, ROWS)
        run(broker, root, Steps(), 1, ["next"])
        assert sorted(broker.visible) == [*["next"], *ROWS], plan
        counted = [broker.outcomes[each] for each in broker.halves if each in broker.outcomes]
        assert counted.count(TransactionState.COMMIT) == len(ROWS) + 1


def test_an_abort_before_a_manifest_rolls_back(tmp_path: Path) -> None:
    broker, steps = Broker(), Steps()
    sent = [broker.send(text) for text in ROWS]
    abort_batch(Batch(QUERY, 0, "g"), sent, ManifestFolder(tmp_path), Ends(broker, steps))
    assert set(broker.outcomes.values()) == {TransactionState.ROLLBACK}


def test_an_abort_after_a_manifest_does_nothing(tmp_path: Path) -> None:
    """Goal: what was decided stays decided: the next run of the batch finishes it."""
    broker, folder = Broker(), ManifestFolder(tmp_path)
    sent = [broker.send(text) for text in ROWS]
    folder.decide(Manifest(QUERY, 0, "g", False, tuple(sent), len(sent)))
    abort_batch(Batch(QUERY, 0, "g"), sent, folder, Ends(broker, Steps()))
    assert not broker.outcomes
    replayed = [broker.send(text) for text in ROWS]
    commit_batch(Batch(QUERY, 0, "g"), replayed, folder, Ends(broker, Steps()))
    assert sorted(broker.visible) == ROWS
    assert [broker.outcomes[each] for each in replayed] == [TransactionState.ROLLBACK] * 3


def test_a_half_that_is_gone_fails_the_commit_by_name(tmp_path: Path) -> None:
    """Goal: a loss is told, not hidden, and told again at every replay."""
    broker, folder = Broker(), ManifestFolder(tmp_path)
    sent = [broker.send(text) for text in ROWS]
    del broker.halves[sent[1]]
    for _ in range(2):
        with pytest.raises(SparkError, match="1 of 3 messages are not committed: a: half messages at queue offsets 1"):
            commit_batch(Batch(QUERY, 0, "g"), sent, folder, Ends(broker, Steps()))
    assert sorted(broker.visible) == ["r0", "r2"]


def test_a_batch_without_rows_is_fine(tmp_path: Path) -> None:
    commit_batch(Batch(QUERY, 0, "g"), [], ManifestFolder(tmp_path), Ends(Broker(), Steps()))
