"""One Apache RocketMQ release on this machine: its jars and our Java driver, fetched and compiled once into a cache."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ARTIFACTS = ("rocketmq-namesrv", "rocketmq-broker", "rocketmq-client", "rocketmq-tools")
DRIVER_SOURCES = Path(__file__).parent / "java"
FETCH_SECONDS_MAX = 600
COMPILE_SECONDS_MAX = 120

OPENED = ("java.nio", "sun.nio.ch", "java.lang", "java.util", "jdk.internal.ref")
EXPORTED = ("jdk.internal.ref", "sun.nio.ch")


class ApacheUnavailable(Exception):
    """Why no Apache broker can be started here: the reason of a skip, not a failure."""


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
    """The release, ready to run; ApacheUnavailable says what is missing."""
    _require_jdk()
    root = _cache_root() / version
    root.mkdir(parents=True, exist_ok=True)
    with _locked(root / "lock"):
        jars = _fetch(version, root)
        return Release(version, jars, _compile(jars, root))


def _cache_root() -> Path:
    chosen = os.environ.get("ROCKETQ_APACHE_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "rocketq" / "apache"


def _tool(name: str) -> str:
    java_home = os.environ.get("JAVA_HOME", "")
    at_home = Path(java_home) / "bin" / name
    found = str(at_home) if java_home and at_home.is_file() else shutil.which(name)
    if found is None:
        raise ApacheUnavailable(f"no {name} was found (a JDK and Maven are needed)")
    return found


def _require_jdk() -> None:
    said = subprocess.run([_tool("javac"), "-version"], capture_output=True, text=True, check=False, timeout=60)
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    if found is None or int(found.group(1)) < 11:
        raise ApacheUnavailable(f"a JDK of 11 or later is needed, javac says {(said.stdout + said.stderr).strip()!r}")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two test runs must not fill the same cache folder at the same time."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _fetch(version: str, root: Path) -> Path:
    jars = root / "lib"
    if jars.is_dir():
        return jars
    partial = root / "lib.partial"
    shutil.rmtree(partial, ignore_errors=True)
    (root / "pom.xml").write_text(_pom(version), encoding="utf-8")
    command = [_tool("mvn"), "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={partial}"]
    try:
        ran = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False, timeout=FETCH_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise ApacheUnavailable(f"Maven did not fetch {version} within {FETCH_SECONDS_MAX} s") from None
    if ran.returncode != 0:
        raise ApacheUnavailable(f"Maven could not fetch {version}: {_first_error(ran.stdout + ran.stderr)}")
    partial.rename(jars)
    return jars


def _first_error(output: str) -> str:
    lines = [line for line in output.splitlines() if "ERROR" in line] or output.splitlines() or ["no output"]
    return lines[0][:300]


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


def _compile(jars: Path, root: Path) -> Path:
    """The driver's classes; a folder per state of the sources, so that an edit is never missed."""
    sources = sorted(DRIVER_SOURCES.glob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    classes = root / f"driver-{digest}"
    if classes.is_dir():
        return classes
    for stale in root.glob("driver-*"):
        shutil.rmtree(stale)
    partial = root / "driver.partial"
    shutil.rmtree(partial, ignore_errors=True)
    command = [_tool("javac"), "-nowarn", "-Xlint:none", "-proc:none", "-encoding", "UTF-8", "-cp", f"{jars}/*"]
    ran = subprocess.run(
        [*command, "-d", str(partial), *map(str, sources)],
        capture_output=True,
        text=True,
        check=False,
        timeout=COMPILE_SECONDS_MAX,
    )
    if ran.returncode != 0:
        raise RuntimeError(f"the driver does not compile against {jars}:\n{ran.stdout}{ran.stderr}")
    return partial.rename(classes)
