"""Other versions of etcd than the machine's, built from their Go modules once into the cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .cache import cache_root, fetch, found, made_once

MAIN = """package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
"""
FETCH_SECONDS_MAX = 300
BUILD_SECONDS_MAX = 900


def etcd(version: str) -> Path:
    """The program; Unavailable says what is missing."""
    compiler = found("go")

    def build(target: Path) -> None:
        (target / "main.go").write_text(MAIN)
        for words in (["mod", "init", "rocketq.interop/etcd"], ["get", f"go.etcd.io/etcd/server/v3@v{version}"]):
            fetch(f"etcd {version}", [compiler, *words], cwd=target, seconds_max=FETCH_SECONDS_MAX)
        command = [compiler, "build", "-o", "etcd", "."]
        built = subprocess.run(
            command, cwd=target, capture_output=True, text=True, check=False, timeout=BUILD_SECONDS_MAX
        )
        assert built.returncode == 0, built.stderr

    return made_once(cache_root() / "etcd" / version, build) / "etcd"
