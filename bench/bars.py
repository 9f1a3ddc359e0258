"""Figures we hold ourselves to, and where results are kept."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Bar:
    """A figure we hold ourselves to."""

    name: str
    measured: float
    wanted: float
    at_most: bool = False

    @property
    def held(self) -> bool:
        return self.measured <= self.wanted if self.at_most else self.measured >= self.wanted

    def __str__(self) -> str:
        limit = f"{'<=' if self.at_most else '>='} {self.wanted:.3g}"
        return f"{'held  ' if self.held else 'MISSED'}  {self.name}: {self.measured:.2f} ({limit})"


def commit_name() -> str:
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return said.stdout.strip()


def saved(name: str) -> dict[str, Any]:
    """What the last run left, or nothing."""
    try:
        return dict(json.loads(_path(name).read_text()))
    except (OSError, ValueError):
        return {}


def save(name: str, figures: dict[str, object]) -> Path:
    """Beside the other results, with commit and machine."""
    path = _path(name)
    path.parent.mkdir(exist_ok=True)
    machine = {
        "cpu_count": os.cpu_count(),
        "cpu": _said_by("/proc/cpuinfo", "model name"),
        "memory": _said_by("/proc/meminfo", "MemTotal"),
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }
    scratch = path.with_suffix(".tmp")  # whoever is killed now leaves the old results whole
    scratch.write_text(json.dumps({"commit": commit_name(), "machine": machine, **figures}, indent=1) + "\n")
    scratch.replace(path)
    return path


def _path(name: str) -> Path:
    return Path(__file__).parent / "results" / f"{name}.json"


def _said_by(file: str, name: str) -> str:
    """The first value of that name in one of the system's lists, or nothing."""
    try:
        lines = Path(file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")
