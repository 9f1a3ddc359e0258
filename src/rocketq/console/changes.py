"""Changes: planned, shown, confirmed, carried out, and written to the audit log. Nothing is retried.

A route makes a `ChangePlan` from the present state. With `dryRun` the plan is the answer, with a token over everything
in it. Without, the token of an earlier preview must fit the plan made now, or the answer is 409: the state has changed.
"""

from __future__ import annotations

import hashlib
import json
import shlex
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from starlette.responses import Response

from rocketq.client.errors import PartlyFailedError
from rocketq.console.audit import AuditEntry
from rocketq.console.config import Role
from rocketq.console.context import Call
from rocketq.console.guard import client_of
from rocketq.console.json_text import plain
from rocketq.console.problems import ProblemError
from rocketq.errors import ConnectionClosedError, RequestTimeoutError, RocketQError

_REMEMBERED_MAX: Final = 1_000
_REMEMBERED_S: Final = 600.0


class ItemStatus(StrEnum):
    DONE = "done"
    UNCHANGED = "unchanged"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NOT_ATTEMPTED = "not-attempted"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedItem:
    """One thing that will change: its state before and after."""

    name: str
    before: Any = None
    after: Any = None
    note: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    name: str
    status: ItemStatus
    reason: str | None = None
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Warning_:
    """A consequence to consider, as a code and fields for translation."""

    code: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """The answer to `dryRun=true`. `confirm` must be typed, where it is given."""

    action: str
    target: str
    items: tuple[PlannedItem, ...]
    warnings: tuple[Warning_, ...]
    command: str
    confirm: str | None
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """What came of each item. `value` is what the change made, such as the id of a run."""

    action: str
    target: str
    items: tuple[ItemResult, ...]
    command: str
    value: Any = None


@dataclass(slots=True, kw_only=True)
class ChangePlan:
    """What a route wants to do. `apply` does it and reports every item."""

    action: str
    target: str
    role: Role
    command: str
    items: tuple[PlannedItem, ...]
    apply: Callable[[], Awaitable[tuple[ItemResult, ...]]]
    warnings: tuple[Warning_, ...] = ()
    confirm: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    value: Any = None

    @property
    def token(self) -> str:
        """Over what was shown: it fits as long as the state is the same."""
        shown = plain([self.action, self.target, self.items, self.confirm, self.parameters])
        return hashlib.sha256(json.dumps(shown, sort_keys=True, ensure_ascii=False).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How the change was asked for."""

    dry_run: bool
    token: str | None = None
    confirm: str | None = None
    idempotency_key: str | None = None


class Remembered:
    """Answers by idempotency key, for ten minutes."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[float, Any]] = OrderedDict()

    def get(self, key: str) -> Any:
        kept = self._answers.get(key)
        return kept[1] if kept is not None and kept[0] > time.monotonic() - _REMEMBERED_S else None

    def put(self, key: str, value: Any) -> None:
        self._answers[key] = time.monotonic(), value
        while len(self._answers) > _REMEMBERED_MAX:
            self._answers.popitem(last=False)


async def run_change(call: Call, asked: Asked, make: Callable[[], Awaitable[ChangePlan]]) -> Response:
    """Preview or carry out; the answer is a Preview or a ChangeResult."""
    remembered: Remembered = call.request.app.state.remembered
    key = f"{call.user.name} {call.request.url.path} {asked.idempotency_key}" if asked.idempotency_key else None
    if key is not None and not asked.dry_run and (kept := remembered.get(key)) is not None:
        return call.answer(kept)
    plan = await make()
    call.require(plan.role)
    if asked.dry_run:
        return call.answer(
            Preview(
                action=plan.action,
                target=plan.target,
                items=plan.items,
                warnings=plan.warnings,
                command=plan.command,
                confirm=plan.confirm,
                token=plan.token,
            )
        )
    if asked.token is not None and asked.token != plan.token:
        raise ProblemError(409, "state-changed", "the state has changed since the preview: look at it again")
    if plan.confirm is not None and asked.confirm != plan.confirm:
        raise ProblemError(422, "confirm", f"give confirm={plan.confirm} to do this", confirm=plan.confirm)
    results = await _applied(plan)
    _audit(call, asked, plan, results)
    value = ChangeResult(
        action=plan.action, target=plan.target, items=results, command=plan.command, value=plain(plan.value)
    )
    if key is not None:
        remembered.put(key, value)
    return call.answer(value)


async def _applied(plan: ChangePlan) -> tuple[ItemResult, ...]:
    try:
        return await plan.apply()
    except RocketQError as error:
        return failed_items([item.name for item in plan.items] or [plan.target], error)


def failed_items(names: list[str], error: RocketQError) -> tuple[ItemResult, ...]:
    """The results of items whose common request failed; after a lost connection they are unknown."""
    if isinstance(error, PartlyFailedError):
        failures = {str(peer): each for peer, each in error.failures.items()}
        return tuple(
            ItemResult(name=name, status=status_of(failures[name]), reason=str(failures[name]))
            if name in failures
            else ItemResult(name=name, status=ItemStatus.DONE)
            for name in dict.fromkeys([*names, *failures, *error.done])
        )
    return tuple(ItemResult(name=name, status=status_of(error), reason=str(error)) for name in names)


def status_of(error: RocketQError) -> ItemStatus:
    lost = isinstance(error, (ConnectionClosedError, RequestTimeoutError))
    return ItemStatus.UNKNOWN if lost else ItemStatus.FAILED


def _audit(call: Call, asked: Asked, plan: ChangePlan, results: tuple[ItemResult, ...]) -> None:
    counts: dict[str, int] = {}
    for one in results:
        counts[one.status.value] = counts.get(one.status.value, 0) + 1
    call.console.audit.add(
        AuditEntry(
            at_ms=time.time_ns() // 1_000_000,
            user=call.user.name,
            source=client_of(call.request.scope),
            cluster=call.cluster.name,
            action=plan.action,
            target=plan.target,
            parameters=plain(plan.parameters),
            preview=asked.token,
            results=counts,
            failures=tuple(f"{one.name}: {one.reason}" for one in results if one.reason)[:20],
        )
    )


def command_line(*parts: object) -> str:
    """The equal command, quoted for a shell; None parts are left out."""
    return shlex.join(str(part) for part in ("rocketq", *parts) if part is not None)
