"""Workers import PySpark as it is installed, and all else from where they were told to."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketq.spark.worker_python import worker_python

pyspark = pytest.importorskip("pyspark", reason="pyspark is not installed (it comes with rocketq[spark])")
HOME = Path(pyspark.__path__[0])
PROGRAM = "import json, os, sys, pyspark; print(json.dumps([pyspark.__file__, os.environ['PYTHONPATH'], sys.argv[1:]]))"


def run(python: str, *places: str) -> tuple[str, str, list[str]]:
    environ = {**os.environ, "PYTHONPATH": ":".join(places)}
    ran = subprocess.run([python, "-c", PROGRAM, "a b", "$x"], env=environ, capture_output=True, text=True, check=True)
    file, path, arguments = json.loads(ran.stdout)
    return file, path, arguments


def test_archives_of_spark_are_left_out_and_nothing_else(tmp_path: Path) -> None:
    """Goal: the compiled package is imported; folders of the user's own stay, with odd characters in them as well."""
    (archive,) = (HOME / "python" / "lib").glob("pyspark.zip")
    own = [str(tmp_path / "my own *"), str(tmp_path / "other.zip")]
    python = worker_python({}, folder=tmp_path)
    file, path, arguments = run(python, str(archive), own[0], str(HOME / "jars" / "spark-core_2.13.jar"), own[1])
    assert file == str(HOME / "__init__.py")
    assert path == ":".join(own)
    assert arguments == ["a b", "$x"]
    assert run(sys.executable, str(archive))[0].startswith(str(archive)), "which is what it is for"


def test_it_is_written_once_and_is_the_same_interpreter(tmp_path: Path) -> None:
    python = worker_python({}, folder=tmp_path)
    said = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == sys.prefix
    written = Path(python).stat().st_ino
    assert worker_python({}, folder=tmp_path) == python
    assert Path(python).stat().st_ino == written


def test_with_a_spark_of_ones_own_the_interpreter_is_left_alone(tmp_path: Path) -> None:
    """Goal: PySpark beside another Spark may be of another version: what Spark brings along counts then."""
    assert worker_python({"SPARK_HOME": str(tmp_path)}, folder=tmp_path) == sys.executable
