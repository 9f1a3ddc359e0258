"""Health checks: named functions that return why something is not ready, or None. Pure.

`/livez` says that the process runs, `/readyz` that it serves, `/startupz` that its start is over. Checks name no
topics, groups or users: these pages may be readable by more people than the metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Check = Callable[[], str | None]
"""Returns why a check fails, or None."""


@dataclass(frozen=True, slots=True)
class HealthReport:
    """Results by check: the reason of a failure, or None."""

    results: Mapping[str, str | None]

    @property
    def ok(self) -> bool:
        return not self.failures

    @property
    def failures(self) -> dict[str, str]:
        return {name: reason for name, reason in self.results.items() if reason is not None}

    def text(self, *, verbose: bool) -> str:
        """One line per failed check, or per check; the last line is the result."""
        shown = self.results if verbose else self.failures
        lines = [f"{name}: {'ok' if reason is None else reason}" for name, reason in shown.items()]
        return "\n".join([*lines, "ok" if self.ok else "not ok"]) + "\n"

    def to_json(self) -> dict[str, Any]:
        checks = [{"name": name, "ok": reason is None, "reason": reason} for name, reason in self.results.items()]
        return {"ok": self.ok, "checks": checks}


@dataclass(slots=True)
class HealthChecks:
    """The checks of a server, in the order in which they are reported."""

    ready: dict[str, Check] = field(default_factory=dict)
    started: dict[str, Check] = field(default_factory=dict)

    def readiness(self) -> HealthReport:
        return HealthReport({name: check() for name, check in (self.started | self.ready).items()})

    def startup(self) -> HealthReport:
        return HealthReport({name: check() for name, check in self.started.items()})
