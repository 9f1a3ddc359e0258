"""Replays of dead letters: carried out in the background, recorded letter by letter, so that a restart loses nothing.

Before a letter is sent its place is written down as being in flight. A run that a crash broke off shows that letter as
`unknown` and those after it as `not-attempted`; continuing a run sends only the latter.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.dead_letters import LetterEdit, LetterRef, ReplayPlan, ReplayResult, ReplayStatus
from rocketq.console.history import History
from rocketq.console.json_text import to_json
from rocketq.errors import RocketQError

log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Run:
    """One replay. `state`: running, done, stopped, broken-off."""

    id: str
    cluster: str
    group: str
    to: str
    user: str
    started_ms: int
    letters: tuple[LetterRef, ...]
    edits: Mapping[LetterRef, LetterEdit] = field(default_factory=dict)
    per_second: float | None = None
    state: str = "running"
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    in_flight: str | None = None
    ended_ms: int | None = None
    reason: str | None = None

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = {"total": len(self.letters)}
        for one in self.results.values():
            found[str(one["status"])] = found.get(str(one["status"]), 0) + 1
        found["not-attempted"] = found.get("not-attempted", 0) + len(self.letters) - len(self.results)
        return found

    def left(self) -> tuple[LetterRef, ...]:
        """Letters that were surely not sent."""
        return tuple(
            letter
            for letter in self.letters
            if letter_name(letter) not in self.results
            or self.results[letter_name(letter)]["status"] == ReplayStatus.NOT_ATTEMPTED
        )


def letter_name(letter: LetterRef) -> str:
    return f"{letter.broker}:{letter.queue_id}@{letter.offset}"


def letter_of(name: str) -> LetterRef:
    place, _, offset = name.rpartition("@")
    broker, _, queue_id = place.rpartition(":")
    return LetterRef(broker=broker, queue_id=int(queue_id), offset=int(offset))


def _edit_json(edit: LetterEdit) -> dict[str, Any]:
    return {
        "body": None if edit.body is None else base64.b64encode(edit.body).decode(),
        "keys": None if edit.keys is None else list(edit.keys),
        "tag": edit.tag,
        "properties": None if edit.properties is None else dict(edit.properties),
    }


def _edit_of(value: Mapping[str, Any]) -> LetterEdit:
    return LetterEdit(
        body=None if value["body"] is None else base64.b64decode(value["body"]),
        keys=None if value["keys"] is None else tuple(value["keys"]),
        tag=value["tag"],
        properties=value["properties"],
    )


class Replays:
    def __init__(self, history: History) -> None:
        self._history = history
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.runs: dict[str, Run] = {}

    async def load(self) -> None:
        """Runs of earlier processes; one that was running is broken off."""
        for text in (await self._history.notes("run/")).values():
            value = json.loads(text)
            value["letters"] = tuple(letter_of(name) for name in value["letters"])
            value["edits"] = {letter_of(name): _edit_of(edit) for name, edit in value.get("edits", {}).items()}
            run = Run(**value)
            results = await self._history.notes(f"result/{run.id}/")
            run.results = {name.split("/", 2)[2]: json.loads(each) for name, each in results.items()}
            if run.state == "running":
                run.state = "broken-off"
                run.reason = "the console was stopped during the run"
                flying = await self._history.note(f"flying/{run.id}")
                if flying and flying not in run.results:
                    run.results[flying] = {
                        "status": ReplayStatus.UNKNOWN.value,
                        "reason": "the console was stopped while it was being sent",
                    }
                    await self._history.keep(f"result/{run.id}/{flying}", json.dumps(run.results[flying]))
                await self._save(run)
            self.runs[run.id] = run

    async def start(self, admin: AsyncAdmin, plan: ReplayPlan, *, cluster: str, user: str) -> Run:
        run = Run(
            id=uuid.uuid4().hex[:12],
            cluster=cluster,
            group=plan.group,
            to=plan.to,
            user=user,
            started_ms=time.time_ns() // 1_000_000,
            letters=plan.letters,
            edits=plan.edits,
            per_second=plan.per_second,
        )
        self.runs[run.id] = run
        await self._save(run)
        self._begin(run, admin, plan)
        return run

    async def go_on(self, run: Run, admin: AsyncAdmin) -> None:
        """Send the letters that were surely not sent, with the edits of the first start."""
        if run.id in self._tasks:
            return
        run.state, run.reason, run.ended_ms = "running", None, None
        plan = ReplayPlan(group=run.group, letters=run.left(), to=run.to, edits=run.edits, per_second=run.per_second)
        await self._save(run)
        self._begin(run, admin, plan)

    async def stop(self, run: Run) -> None:
        task = self._tasks.get(run.id)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for task in list(self._tasks.values()):
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def replayed(self, cluster: str, group: str) -> Mapping[str, str]:
        """New message ids of dead letters that were sent before, by the letter's name."""
        prefix = f"replayed/{cluster}/{group}/"
        return {name[len(prefix) :]: value for name, value in (await self._history.notes(prefix)).items()}

    def _begin(self, run: Run, admin: AsyncAdmin, plan: ReplayPlan) -> None:
        task = asyncio.create_task(self._run(run, admin, plan), name=f"rocketq-replay-{run.id}")
        self._tasks[run.id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run.id, None))

    async def _run(self, run: Run, admin: AsyncAdmin, plan: ReplayPlan) -> None:
        try:
            for letter in plan.letters:
                name = letter_name(letter)
                await self._history.keep(f"flying/{run.id}", name)
                run.in_flight = name
                one = ReplayPlan(group=plan.group, letters=(letter,), to=plan.to, edits=plan.edits, per_second=None)
                async for result in admin.dead_letters.replay(one):
                    await self._record(run, result)
                if run.per_second:
                    await asyncio.sleep(1 / run.per_second)
            run.state = "done"
        except asyncio.CancelledError:
            run.state, run.reason = "stopped", "stopped"
            if run.in_flight is not None and run.in_flight not in run.results:
                run.results[run.in_flight] = {"status": ReplayStatus.UNKNOWN.value, "reason": "stopped while sending"}
        except RocketQError as error:
            run.state, run.reason = "broken-off", str(error)
        except Exception:  # a failed run is shown; the console must survive
            run.state, run.reason = "broken-off", "the replay failed: see the log of the console"
            log.exception("run=%s the replay failed", run.id)
        run.in_flight = None
        run.ended_ms = time.time_ns() // 1_000_000
        await self._save(run)

    async def _record(self, run: Run, result: ReplayResult) -> None:
        name = letter_name(result.letter)
        value = {
            "status": result.status.value,
            "target": result.target,
            "message_id": result.message_id,
            "queue": result.queue,
            "queue_offset": result.queue_offset,
            "reason": result.reason,
        }
        run.results[name] = value
        run.in_flight = None
        await self._history.keep(f"result/{run.id}/{name}", json.dumps(value))
        if result.status is ReplayStatus.SENT and result.message_id is not None:
            await self._history.keep(f"replayed/{run.cluster}/{run.group}/{name}", result.message_id)

    async def _save(self, run: Run) -> None:
        value = {
            "id": run.id,
            "cluster": run.cluster,
            "group": run.group,
            "to": run.to,
            "user": run.user,
            "started_ms": run.started_ms,
            "letters": [letter_name(letter) for letter in run.letters],
            "edits": {letter_name(letter): _edit_json(edit) for letter, edit in run.edits.items()},
            "per_second": run.per_second,
            "state": run.state,
            "ended_ms": run.ended_ms,
            "reason": run.reason,
        }
        await self._history.keep(f"run/{run.id}", to_json(value).decode())
