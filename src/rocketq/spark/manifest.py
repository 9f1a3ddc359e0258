"""The half messages of a batch that count: decided once, written to a file, and found again after a crash.

    <location>/<query id>/<batch id>.json       state decided: the half messages of the attempt that counts
                                                state settled: all of them are committed

Files are created atomically; the second writer finds the file of the first.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final, Protocol

from rocketq.client.blocking.sender import HalfHandle
from rocketq.spark.errors import SparkError

FORMAT: Final = 1
KEPT_BATCHES: Final = 100
"""Spark replays the last batch only; older ones are kept for people who go back in a checkpoint."""
_QUERY: Final = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Manifest:
    """What was decided about a batch; `handles` is empty once all are committed."""

    query: str
    batch: int
    group: str
    is_settled: bool = False
    handles: tuple[HalfHandle, ...] = field(default=(), repr=False)
    count: int = 0

    def settled(self) -> Manifest:
        return Manifest(self.query, self.batch, self.group, True, (), self.count)

    def to_json(self) -> str:
        ordered = sorted(self.handles)
        halves = {
            broker: [[each.half_queue_offset, each.half_log_offset] for each in own]
            for broker, own in groupby(ordered, lambda each: each.broker_name)
        }
        state = "settled" if self.is_settled else "decided"
        tree = {"format": FORMAT, "queryId": self.query, "batchId": self.batch, "group": self.group, "state": state}
        return json.dumps({**tree, "count": self.count, "halves": halves}, separators=(",", ":")) + "\n"

    @classmethod
    def from_json(cls, text: str, where: str) -> Manifest:
        try:
            tree = json.loads(text)
            if tree["format"] != FORMAT or tree["state"] not in ("decided", "settled"):
                raise ValueError("of another format")
            handles = tuple(
                HalfHandle(str(broker), int(queue_offset), int(log_offset))
                for broker, halves in tree["halves"].items()
                for queue_offset, log_offset in halves
            )
            settled = tree["state"] == "settled"
            return cls(str(tree["queryId"]), int(tree["batchId"]), str(tree["group"]), settled, handles, tree["count"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SparkError(f"manifest {where} cannot be read ({error}): without it nobody knows which messages of "
                             "the batch count") from None  # fmt: skip


class Manifests(Protocol):
    def find(self, query: str, batch: int) -> Manifest | None: ...

    def decide(self, manifest: Manifest) -> Manifest:
        """Put it down unless there is one already; the one that counts."""

    def settle(self, manifest: Manifest) -> None:
        """Nothing of it is left to do."""


class ManifestFolder:
    """Files of one file system, which the driver finds again after a restart, on this machine or another one."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, query: str, batch: int) -> Manifest | None:
        path = self._path(query, batch)
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise SparkError(f"manifest {path} cannot be read: {error}") from None
        return Manifest.from_json(text, str(path))

    def decide(self, manifest: Manifest) -> Manifest:
        path = self._path(manifest.query, manifest.batch)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._written(path, manifest) as draft:
                try:
                    os.link(draft, path)
                except FileExistsError:
                    pass
                except OSError:  # a file system without hard links
                    if not path.exists():
                        draft.rename(path)
            _sync_folder(path.parent)
        except OSError as error:
            raise SparkError(f"manifest {path} cannot be written: {error}") from None
        found = self.find(manifest.query, manifest.batch)
        if found is None:
            raise SparkError(f"manifest {path} was written and is not there")
        return found

    def settle(self, manifest: Manifest) -> None:
        path = self._path(manifest.query, manifest.batch)
        try:
            with self._written(path, manifest.settled()) as draft:
                draft.rename(path)
            self._forget(path.parent, manifest.batch - KEPT_BATCHES)
        except OSError as error:
            raise SparkError(f"manifest {path} cannot be written: {error}") from None

    def _path(self, query: str, batch: int) -> Path:
        if not _QUERY.fullmatch(query):
            raise SparkError(f"{query!r} is no id of a query")
        return self._root / query / f"{batch}.json"

    @contextlib.contextmanager
    def _written(self, path: Path, manifest: Manifest) -> Iterator[Path]:
        """A draft beside it, on disk; gone afterwards unless it took its place."""
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(handle, "w") as file:
                file.write(manifest.to_json())
                file.flush()
                os.fsync(file.fileno())
            yield Path(name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _forget(self, folder: Path, below: int) -> None:
        for path in folder.glob("*.json"):
            if path.stem.isdigit() and int(path.stem) <= below:
                path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """The name is on disk too, before anything is done that the manifest must answer for."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def describe_handles(failures: Mapping[HalfHandle, object]) -> str:
    """Every half message by broker and queue offset, those with the same reason together."""
    by_reason: dict[tuple[str, str], list[int]] = {}
    for handle, reason in sorted(failures.items()):
        text = re.sub(r"(log offset|queue offset) \d+", r"\1 ...", str(reason))
        by_reason.setdefault((handle.broker_name, text), []).append(handle.half_queue_offset)
    return "; ".join(
        f"{broker}: half messages at queue offsets {_ranges(offsets)}: {reason}"
        for (broker, reason), offsets in by_reason.items()
    )


def _ranges(offsets: list[int]) -> str:
    parts = []
    for _, run in groupby(enumerate(offsets), lambda each: each[1] - each[0]):
        numbers = [number for _, number in run]
        parts.append(str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}")
    return ", ".join(parts)
