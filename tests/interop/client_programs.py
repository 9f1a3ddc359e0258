"""Programs with the clients of others, one per client: made once, skipped with a reason where that cannot be.

Each plays the same scenes: `program MODE NAMESERVER TOPIC` prints lines of a name and what it saw.

| mode | scene |
|---|---|
| produce | every way of sending the client has, to a topic that is new |
| consume | concurrently, in order, by tag, clustering and broadcasting |
| filter | by SQL92 and by tag (Java and Go) |
| rebalance | two members share the queues, one leaves |
| resume | a group that was here before gets only what is new |
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .cache import Unavailable, cache_root, digest_of, fetch, first_error, found, made_once
from .release import obtain

HERE = Path(__file__).parent
PLAY_SECONDS_MAX = 150
FETCH_SECONDS_MAX = 300
CPP_PACKAGE = "rocketmq==0.4.4"
HEAP_MB = 256


@dataclass(frozen=True)
class Program:
    """How to start it; it gets a home folder of its own, where some clients keep offsets and logs."""

    command: Callable[[Path], list[str]]
    environment: dict[str, str] = field(default_factory=dict)

    def play(self, mode: str, nameserver_addr: str, topic: str, home: Path) -> dict[str, str]:
        home.mkdir(exist_ok=True)
        ran = subprocess.run(
            [*self.command(home), mode, nameserver_addr, topic],
            capture_output=True,
            text=True,
            check=False,
            timeout=PLAY_SECONDS_MAX,
            cwd=home,
            env={**os.environ, "HOME": str(home), **self.environment},
        )
        assert ran.returncode == 0, f"{mode} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr[-4000:]}"
        return dict(line.split(" ", 1) for line in ran.stdout.splitlines())


def java(version: str) -> Program:
    release = obtain(version)
    return Program(lambda home: [*release.java(heap_mb=HEAP_MB, home=home), "Clients"])


def go(part: str = ".") -> Program:
    """A program of go/ with the client v2.1.2, as go.mod pins it; the scenes above without a `part`."""
    sources = HERE / "go"
    compiler = found("go")

    def build(target: Path) -> None:
        fetch("the Go client", [compiler, "mod", "download"], cwd=sources, seconds_max=FETCH_SECONDS_MAX)
        command = [compiler, "build", "-o", str(target / "program"), f"./{part}"]
        built = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False, timeout=600)
        assert built.returncode == 0, built.stderr

    name = "clients" if part == "." else part
    folder = made_once(cache_root() / "go" / f"{name}-{digest_of(sources.rglob('*.*'))}", build)
    return Program(lambda home: [str(folder / "program")], {"ROCKETMQ_GO_LOG_LEVEL": "error"})


def node() -> Program:
    """ali-ons, as package.json pins it."""
    sources = HERE / "node"
    runtime, npm = found("node"), found("npm")

    def install(target: Path) -> None:
        for source in sources.iterdir():
            shutil.copy(source, target)
        command = [npm, "install", "--silent", "--no-audit", "--no-fund"]
        fetch("ali-ons", command, cwd=target, seconds_max=FETCH_SECONDS_MAX)

    folder = made_once(cache_root() / "node" / digest_of(sources.glob("*.*")), install)
    return Program(lambda home: [runtime, str(folder / "clients.js")])


def cpp() -> Program:
    """librocketmq as the package `rocketmq` brings it, in an environment of its own: its name is taken by others."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise Unavailable(f"the C++ client comes for Linux on x86-64 only, this is {platform.machine()}")

    def install(target: Path) -> None:
        fetch("venv", [sys.executable, "-m", "venv", str(target)], cwd=target, seconds_max=FETCH_SECONDS_MAX)
        pip = [str(target / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        wheel = [*pip, "--only-binary", ":all:", CPP_PACKAGE]
        fetch("the C++ client", wheel, cwd=target, seconds_max=FETCH_SECONDS_MAX)

    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = made_once(cache_root() / "cpp" / f"{CPP_PACKAGE.replace('==', '-')}-python{version}", install)
    python = str(folder / "bin" / "python")
    loads = subprocess.run(
        [python, "-c", "import rocketmq.ffi"], capture_output=True, text=True, check=False, timeout=60
    )
    if loads.returncode != 0:
        raise Unavailable(f"the C++ client cannot be loaded: {first_error(loads.stderr)}")
    return Program(lambda home: [python, str(HERE / "cpp" / "clients.py")])
