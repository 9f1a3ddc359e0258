"""The load generator: compiled once per state of its source, run as a process, its figures read back."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

SOURCES = tuple(Path(__file__).with_name(name) for name in ("loadgen.c", "hmac_sha1.h"))
SLACK_SECONDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What is asked of a broker, and for how long."""

    connections: int = 8
    depth: int = 128
    body: int = 128
    batch: int = 1
    queues: int = 8
    topics: int = 1
    binary: int = 0
    pull: int = 0
    messages: int = 100_000
    delay_level: int = 0
    wide: int = 0
    access_key: str | None = None
    secret_key: str | None = None
    topic: str = "BenchTopic"
    protocol: str = "rocketmq"
    seconds: float = 3.0
    warm_up: float = 0.7

    def arguments(self) -> list[str]:
        names = ("connections", "depth", "body", "batch", "queues", "topics", "binary", "pull", "messages")
        names += ("topic", "protocol", "delay_level", "wide")
        if self.access_key is not None:
            names += ("access_key", "secret_key")
        given = [word for name in names for word in (f"--{name.replace('_', '-')}", str(getattr(self, name)))]
        return [*given, "--seconds", str(self.seconds), "--warm-up", str(self.warm_up)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    messages_per_s: float
    requests_per_s: float
    cpu_us_per_message: float
    mb_per_s: float
    p50_us: float
    p99_us: float
    max_us: float
    errors: int
    messages: int
    generator_cpu_share: float
    broker_cpu_share: float
    anonymous_mib: float


def median(rounds: Sequence[Measured]) -> Measured:
    """Figure by figure."""
    return Measured(**{name: statistics.median(asdict(each)[name] for each in rounds) for name in asdict(rounds[0])})


class NoCompilerError(Exception):
    """Without a C compiler there is no generator."""


@cache
def program() -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise NoCompilerError("no C compiler was found for the load generator")
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"rocketq-loadgen-{digest}"
    if not built.exists():
        partial = built.with_suffix(f".{os.getpid()}")  # tests in parallel build it at the same time
        subprocess.run([compiler, "-O2", "-o", str(partial), str(SOURCES[0])], check=True)
        partial.rename(built)
    return built


def run(load: Load, *, ports: list[int], pids: list[int]) -> Measured:
    """One run; answers that are no success fail it."""
    places = ["--ports", ",".join(map(str, ports)), "--pids", ",".join(map(str, pids))]
    done = subprocess.run(
        [str(program()), *load.arguments(), *places],
        capture_output=True,
        text=True,
        check=False,
        timeout=load.seconds + load.warm_up + SLACK_SECONDS,
    )
    if not done.stdout:
        raise RuntimeError(f"the load generator said: {done.stderr.strip()[:500]}")
    figures = Measured(**json.loads(done.stdout.splitlines()[-1]))
    if figures.errors:
        print(f"  {figures.errors} answers were no success: {done.stderr.strip()[:300]}")
    return figures
