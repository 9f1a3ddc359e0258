"""The sink with a plan of when it dies: at which step of which batch, and how."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_rocketmq import DefaultSource
from rocketq.client.blocking import BlockingClient
from rocketq.client.blocking.sender import HalfHandle, TransactionEnds
from rocketq.errors import RocketQError
from rocketq.protocol.flags import TransactionState
from rocketq.spark.manifest import Manifest, ManifestFolder
from rocketq.spark.sink import StreamWriter

TASK_STEPS = ("task begins", "task has sent some", "task has sent all")
COMMIT_STEPS = ("before the manifest", "after the manifest", "between two ends", "after the ends", "all is settled")


class Plan:
    """A file with the steps to die at, in order: whoever comes to the first one takes it off and dies.

    `how` is "raise", "kill" (this process), "kill all" (the driver with its JVM, a process group, and this
    process) or "kill broker" (whoever came here goes on); files beside the plan say whom.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)

    def write(self, steps: list[str], how: str) -> None:
        for taken in self._path.parent.glob(f"{self._path.name}.[0-9]*"):
            taken.unlink()
        self._path.write_text(json.dumps({"how": how, "steps": steps}))

    def left(self) -> list[str]:
        return list(json.loads(self._path.read_text())["steps"])

    def at(self, step: str) -> None:
        plan: dict[str, Any] = json.loads(self._path.read_text())
        if plan["steps"][:1] != [step]:
            return
        draft = self._path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({**plan, "steps": plan["steps"][1:]}))
        try:
            os.link(self._path, self._path.with_suffix(f".{len(plan['steps'])}"))  # one of several tasks dies
        except FileExistsError:
            return
        draft.rename(self._path)
        if plan["how"] == "raise":
            raise RuntimeError(f"planned: {step}")
        if plan["how"] == "kill broker":
            kill_once(self._path.with_suffix(".broker"))
            return
        if plan["how"] == "kill all":
            wait_until_uncommitted(self._path.with_suffix(".other"))
            os.killpg(int(self._path.with_suffix(".driver").read_text()), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def kill_once(pid_file: Path) -> None:
    """Kill who is serving; its successor, once it serves, writes the file anew."""
    until = time.monotonic() + 60
    while not pid_file.exists():
        assert time.monotonic() < until, "no broker serves"
        time.sleep(0.05)
    pid = int(pid_file.read_text())
    pid_file.unlink()
    os.kill(pid, signal.SIGKILL)


def wait_until_uncommitted(other: Path) -> None:
    """If a file names another stream, into Parquet: until it has written a batch that its checkpoint does not have."""
    if not other.exists():
        return
    until = time.monotonic() + 30
    while not is_uncommitted(Path(other.read_text())) and time.monotonic() < until:
        time.sleep(0.001)


def is_uncommitted(stream: Path) -> bool:
    committed = last_batch(stream / "checkpoint" / "commits")
    return last_batch(stream / "rows" / "_spark_metadata") > committed


def last_batch(folder: Path) -> int:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(name.removesuffix(".compact")) for name in names if name[0].isdigit()), default=-1)


class FaultySource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "rocketmq_faulty"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        options = {key.lower(): value for key, value in self.options.items()}
        plan = Plan(options.pop("faultplan"))
        return FaultyWriter(schema, options, plan)


class FaultyWriter(StreamWriter):
    def __init__(self, schema: StructType, options: dict[str, str], plan: Plan) -> None:
        super().__init__(schema, options)
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self._plan.at(TASK_STEPS[0])
        done = super().write(self._watched(iterator))
        self._plan.at(TASK_STEPS[2])
        return done

    def _watched(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if number:
                self._plan.at(TASK_STEPS[1])
            yield batch

    def _manifests(self) -> ManifestFolder:
        assert self._options.manifests is not None
        return _Folder(self._options.manifests, self._plan)

    def _ends(self, client: BlockingClient) -> TransactionEnds:
        return _Ends(client, self._plan)


class _Folder(ManifestFolder):
    def __init__(self, root: Path, plan: Plan) -> None:
        super().__init__(root)
        self._plan = plan

    def decide(self, manifest: Manifest) -> Manifest:
        self._plan.at(COMMIT_STEPS[0])
        found = super().decide(manifest)
        self._plan.at(COMMIT_STEPS[1])
        return found

    def settle(self, manifest: Manifest) -> None:
        self._plan.at(COMMIT_STEPS[3])
        super().settle(manifest)
        self._plan.at(COMMIT_STEPS[4])


class _Ends(TransactionEnds):
    def __init__(self, client: BlockingClient, plan: Plan) -> None:
        super().__init__(client)
        self._plan = plan

    def end_all(
        self, group: str, handles: Iterable[HalfHandle], state: TransactionState
    ) -> dict[HalfHandle, RocketQError]:
        every = list(handles)
        middle = len(every) // 2 if state is TransactionState.COMMIT else len(every)
        failures = super().end_all(group, every[:middle], state)
        if middle < len(every):
            self._plan.at(COMMIT_STEPS[2])
        return failures | super().end_all(group, every[middle:], state)
