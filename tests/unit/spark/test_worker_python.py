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


def started(script: Path, module: str, **environ: str) -> str:
    """What comes of a process of this module, and what it is told of threads."""
    kept = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    said = subprocess.run(
        [script, "-m", module, "x"], env={**kept, **environ}, capture_output=True, text=True, check=True
    )
    return said.stdout.strip()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """That of the workers, with a program that says how it was started in the interpreter's place."""
    program = tmp_path / "said"
    program.write_text('#!/bin/sh\necho "$* ${OMP_NUM_THREADS:-none}"\n')
    program.chmod(0o755)
    made = Path(worker_python({}, folder=tmp_path / "scripts"))
    made.write_text(made.read_text().replace(sys.executable, str(program)))
    return made


def test_the_process_of_a_streaming_query_does_with_one_thread(script: Path) -> None:
    """Goal: numpy starts none there, unless somebody wants so; tasks are told by Spark itself."""
    query = "pyspark.sql.streaming.python_streaming_source_runner"
    assert started(script, query) == f"-m {query} x 1"
    assert started(script, query, OMP_NUM_THREADS="3") == f"-m {query} x 3"


def test_the_daemon_of_workers_is_ours(script: Path) -> None:
    """Goal: whatever Spark plans or runs in Python, nobody hears of a reader that had enough."""
    assert started(script, "pyspark.daemon") == "-m rocketq.spark.worker_daemon x none"
    assert started(script, "pyspark.worker") == "-m pyspark.worker x none"
