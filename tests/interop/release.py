"""One Apache RocketMQ release on this machine: its jars and our Java driver, fetched and compiled once into a cache."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .cache import Unavailable, cache_root, digest_of, fetch, made_once

ARTIFACTS = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-client", "rocketmq-tools")
DRIVER_SOURCES = Path(__file__).parent / "java"
FETCH_SECONDS_MAX = 600
COMPILE_SECONDS_MAX = 120

ApacheUnavailable = Unavailable

OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.ref")
EXPORTED = ("jdk.internal.ref", "sun.nio.ch")


@dataclass(frozen=True, slots=True)
class Release:
    """Where the jars and the compiled driver of a version lie, and how to start its JVMs."""

    version: str
    jars: Path
    driver: Path

    @property
    def is_4x(self) -> bool:
        return self.version.startswith("4.")

    def java(self, *, heap_mb: int, home: Path) -> list[str]:
        """The start of a command line; system properties, main class and arguments follow."""
        opens = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
        exports = [f"--add-exports=java.base/{name}=ALL-UNNAMED" for name in EXPORTED]
        return [
            _tool("java"),
            *opens,
            *exports,
            f"-Xms{heap_mb}m",
            f"-Xmx{heap_mb}m",
            "-XX:TieredStopAtLevel=1",  # starts faster; nothing here is measured
            "-XX:+UseSerialGC",
            f"-Duser.home={home}",
            "-Dfile.encoding=UTF-8",
            "-cp",
            f"{self.driver}:{self.jars}/*",
        ]


@functools.cache
def obtain(version: str) -> Release:
    """The release, ready to run; Unavailable says what is missing."""
    _require_jdk()
    root = cache_root() / version
    jars = made_once(root / "lib", lambda partial: _fetch(version, root, partial))
    sources = sorted(DRIVER_SOURCES.glob("*.java"))
    driver = made_once(root / f"driver-{digest_of(sources)}", lambda partial: _compile(jars, sources, partial))
    return Release(version, jars, driver)


def _tool(name: str) -> str:
    java_home = os.environ.get("JAVA_HOME", "")
    at_home = Path(java_home) / "bin" / name
    found = str(at_home) if java_home and at_home.is_file() else shutil.which(name)
    if found is None:
        raise Unavailable(f"no {name} was found (a JDK and Maven are needed)")
    return found


def _require_jdk() -> None:
    said = subprocess.run([_tool("javac"), "-version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    if found is None or int(found.group(1)) < 11:
        raise Unavailable(f"a JDK of 11 or later is needed, javac says {(said.stdout + said.stderr).strip()!r}")


def _fetch(version: str, root: Path, target: Path) -> None:
    (root / "pom.xml").write_text(_pom(version), encoding="utf-8")
    command = [_tool("mvn"), "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
    fetch(f"Apache RocketMQ {version}", command, cwd=root, seconds_max=FETCH_SECONDS_MAX)


def _pom(version: str) -> str:
    wanted = "".join(
        f"<dependency><groupId>org.apache.rocketmq</groupId><artifactId>{artifact}</artifactId>"
        f"<version>{version}</version></dependency>"
        for artifact in ARTIFACTS
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>rocketq.interop</groupId><artifactId>apache</artifactId><version>1</version>"
        f"<dependencies>{wanted}</dependencies></project>\n"
    )


def _compile(jars: Path, sources: list[Path], target: Path) -> None:
    command = [_tool("javac"), "-nowarn", "-Xlint:none", "-proc:none", "-encoding", "UTF-8", "-cp", f"{jars}/*"]
    ran = subprocess.run(
        [*command, "-d", str(target), *map(str, sources)],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMPILE_SECONDS_MAX,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"the driver does not compile against {jars}:\n{ran.stdout}{ran.stderr}")
