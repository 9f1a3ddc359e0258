"""The manifest of an archive: a sequence of atomic commits.

Workers write files under a run's staging directory. A commit is a file that gets its number by a hard link, which
succeeds for one writer only; from then on its files are part of the archive, in the staging directory too. Then they
are moved to their final path and the files that they replace are deleted; after a crash the next run does that.
Uncommitted files are deleted.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rocketq.spark.archive.coverage import NOTHING, Coverage
from rocketq.spark.errors import SparkError

FORMAT: Final = 1
SNAPSHOT_EVERY: Final = 50
"""Every this many commits one lists all files, and reading starts there; the others list only their changes."""


@dataclass(frozen=True, slots=True)
class ArchiveState:
    """After a commit. `lost` are offsets that had aged out before they could be archived."""

    number: int = 0
    files: Mapping[str, ArchivedFile] = field(default_factory=dict)
    archived: Coverage = NOTHING
    lost: Coverage = NOTHING


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What one run does to an archive."""

    kind: str
    added: tuple[ArchivedFile, ...] = ()
    removed: tuple[str, ...] = ()
    archived: Coverage = NOTHING
    lost: Coverage = NOTHING

    @property
    def is_empty(self) -> bool:
        return not (self.added or self.removed or self.archived.count or self.lost.count)


class ArchiveFolder:
    """A directory that all workers can access. `on_step` is called for each step that changes it, for tests."""

    def __init__(self, target: Path | str, *, on_step: Callable[[str], None] = lambda step: None) -> None:
        self.target = Path(str(target).removeprefix("file://")).absolute()
        if "://" in str(target).removeprefix("file://"):
            raise SparkError(f"{target}: an archive is a directory that all nodes share, not a URL")
        self._step = on_step

    @property
    def exists(self) -> bool:
        return (self.target / HOME).is_dir()

    # Reading

    def load(self) -> ArchiveState:
        """As of the last commit."""
        numbers = self._numbers()
        bodies: list[dict[str, Any]] = []
        for number in reversed(numbers):
            bodies.append(self._read(number))
            if "files" in bodies[-1]:
                break
        if not bodies:
            return ArchiveState()
        files: dict[str, ArchivedFile] = {}
        for body in reversed(bodies):
            for each in body.get("files", body["added"]):
                files[each["path"]] = ArchivedFile(**each)
            for path in body["removed"]:
                files.pop(path, None)
        last = bodies[0]
        return ArchiveState(numbers[-1], files, Coverage.from_tree(last["archived"]), Coverage.from_tree(last["lost"]))

    def place_of(self, path: str) -> Path | None:
        """The path of a committed file: final, or still in staging; None if it was replaced."""
        place = self.target / path
        if place.exists():
            return place
        staged = [each / path for each in self._runs() if (each / path).exists()]
        return staged[0] if staged else (place if place.exists() else None)

    # Writing, by who holds the lock

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One at a time; what a run that died left is finished or removed first."""
        (self.target / COMMITS).mkdir(parents=True, exist_ok=True)
        handle = os.open(self.target / HOME / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SparkError(f"another run is working on {self.target}") from None
            self._settle_last()
            yield
        finally:
            os.close(handle)

    def begin(self) -> str:
        """A run: the name of its staging directory."""
        run = uuid.uuid4().hex[:12]
        (self.target / STAGING / run).mkdir(parents=True)
        return run

    def staging(self, run: str) -> Path:
        return self.target / STAGING / run

    def drop(self, run: str) -> None:
        shutil.rmtree(self.staging(run), ignore_errors=True)

    def commit(self, before: ArchiveState, change: Change, run: str, now_ms: int) -> ArchiveState:
        """Apply the whole change or nothing; SparkError if another run committed first."""
        self._require_staged(change.added, run)
        after = _applied(before, change)
        body = {
            "format": FORMAT,
            "number": after.number,
            "kind": change.kind,
            "run": run,
            "time_ms": now_ms,
            "added": [file.to_json() for file in change.added],
            "removed": list(change.removed),
            "archived": after.archived.tree(),
            "lost": after.lost.tree(),
        }
        if after.number % SNAPSHOT_EVERY == 0:
            body["files"] = [file.to_json() for file in after.files.values()]
        self._publish(after.number, body)
        self._settle(body)
        return after

    def _require_staged(self, added: Iterable[ArchivedFile], run: str) -> None:
        for file in added:
            staged = self.staging(run) / file.path
            if not staged.exists() or staged.stat().st_size != file.size_bytes:
                raise SparkError(f"{staged} was written by a worker and is not seen here: all nodes must share it")

    def _publish(self, number: int, body: Mapping[str, Any]) -> None:
        place = self.target / COMMITS / f"{number:020d}.json"
        fresh = place.with_name(f".{uuid.uuid4().hex}.tmp")
        self._step("write the commit")
        with open(fresh, "w") as file:
            json.dump(body, file, sort_keys=True, separators=(",", ":"))
            file.flush()
            os.fsync(file.fileno())
        try:
            self._step("give it its number")
            os.link(fresh, place)
        except FileExistsError:
            raise SparkError(f"another run has changed {self.target}; nothing of this one was added") from None
        finally:
            fresh.unlink()
        _sync_directory(place.parent)

    def _settle_last(self) -> None:
        """Finish what the last commit began, remove what was never committed."""
        numbers = self._numbers()
        if numbers:
            self._settle(self._read(numbers[-1]))
        for run in self._runs():
            shutil.rmtree(run, ignore_errors=True)
        for left in (self.target / COMMITS).glob(".*.tmp"):
            left.unlink(missing_ok=True)

    def _settle(self, body: Mapping[str, Any]) -> None:
        staging = self.staging(body["run"])
        for each in body["added"]:
            for path in (each["keys_path"], each["path"]):
                if (staging / path).exists():
                    place = self.target / path
                    place.parent.mkdir(parents=True, exist_ok=True)
                    self._step(f"move {path}")
                    os.replace(staging / path, place)
        for path in body["removed"]:
            self._step(f"remove {path}")
            name = Path(path).stem
            (self.target / path).unlink(missing_ok=True)
            (self.target / HOME / "keys" / f"{name}.arrow").unlink(missing_ok=True)
        self._step("remove the staging directory")
        shutil.rmtree(staging, ignore_errors=True)

    # Files

    def _numbers(self) -> list[int]:
        folder = self.target / COMMITS
        return sorted(int(each.stem) for each in folder.glob("*.json")) if folder.is_dir() else []

    def _read(self, number: int) -> dict[str, Any]:
        path = self.target / COMMITS / f"{number:020d}.json"
        try:
            body: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise SparkError(f"the manifest {path} cannot be read: {error}") from None
        if body.get("format") != FORMAT:
            raise SparkError(f"the manifest {path} is of format {body.get('format')}, which this version cannot read")
        return body

    def _runs(self) -> list[Path]:
        folder = self.target / STAGING
        return sorted(folder.iterdir()) if folder.is_dir() else []


def _applied(before: ArchiveState, change: Change) -> ArchiveState:
    twice = before.archived.first_common(change.archived)
    if twice is not None:
        queue, (low, high) = twice
        raise SparkError(f"{queue}: offsets {low} to {high - 1} are in the archive already")
    files = {path: file for path, file in before.files.items() if path not in set(change.removed)}
    files |= {file.path: file for file in change.added}
    archived = before.archived.plus(change.archived)
    lost = before.lost.plus(change.lost).minus(archived)
    return ArchiveState(before.number + 1, files, archived, lost)


def _sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


HOME: Final = "_archive"
KEYS: Final = f"{HOME}/keys"
COMMITS: Final = f"{HOME}/commits"
STAGING: Final = f"{HOME}/staging"
_ESCAPED: Final = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(32)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedFile:
    """One Parquet file of one topic and day (UTC, by store time). Times and log offsets are those of its messages."""

    path: str
    keys_path: str
    topic: str
    date: str
    rows: int
    size_bytes: int
    first_ms: int
    last_ms: int
    log_low: int
    log_high: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def data_path(topic: str, date: str, name: str) -> str:
    return f"topic={escaped(topic)}/dt={date}/{name}.parquet"


def keys_path(name: str) -> str:
    return f"{KEYS}/{name}.arrow"


def escaped(value: str) -> str:
    """A partition's value as Spark and Hive write it into a path."""
    return "".join(f"%{ord(char):02X}" if char in _ESCAPED else char for char in value)
