"""Where Spark may run, and what a slip is answered with."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.unit.spark.log_writing import record, write_log

from rocketq.cli.main import main
from rocketq.spark.errors import AwayError, OptionError, SparkError
from rocketq.spark.sessions import FORMS, require_master, require_remote, session


@pytest.fixture
def listening() -> int:
    """A port where somebody answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    "master", ["local", "local[2]", "local[*]", "local[2,4]", "local-cluster[2,1,1024]", "yarn", "k8s://https://h:443"]
)
def test_masters_that_spark_knows_pass(monkeypatch: pytest.MonkeyPatch, master: str) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    require_master(master)


@pytest.mark.parametrize("master", ["", "locl[2]", "local[x]", "spark:/host:7077", "spark://host", "mesos://h:1"])
def test_others_are_named_with_the_forms_there_are(master: str) -> None:
    with pytest.raises(OptionError, match="none that Spark knows: local"):
        require_master(master)


def test_yarn_needs_the_settings_of_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(OptionError, match="master yarn needs HADOOP_CONF_DIR or YARN_CONF_DIR"):
        require_master("yarn")


def test_a_master_that_does_not_answer_is_told_at_once(listening: int) -> None:
    """Goal: seconds, not Spark's minute."""
    require_master(f"spark://127.0.0.1:1,127.0.0.1:{listening}")
    with pytest.raises(AwayError, match=r"no Spark master answers at 127\.0\.0\.1:1"):
        require_master("spark://127.0.0.1:1")


def test_spark_connect_is_checked_too(listening: int) -> None:
    require_remote(f"sc://127.0.0.1:{listening}/;user_id=x")
    with pytest.raises(AwayError, match="no Spark Connect server answers"):
        require_remote("sc://127.0.0.1:1")
    with pytest.raises(OptionError, match="no address of Spark Connect"):
        require_remote("http://127.0.0.1:1")


def test_a_session_is_refused_before_anything_is_started() -> None:
    with pytest.raises(SparkError, match="exclude each other"):
        session(master="local", remote="sc://h")
    with pytest.raises(SparkError, match="no Spark Connect server"):
        session(remote="sc://127.0.0.1:1")


def test_a_pipeline_for_a_master_that_is_none_ends_in_one_line(tmp_path: Path) -> None:
    """Goal: a slip in --master costs a moment, not a minute and a page of Java."""
    write_log(tmp_path / "commitlog", map(record, range(3)), file_bytes=1 << 14)
    said = CliRunner().invoke(main, ["pipeline", "verify", str(tmp_path), "--master", "locl[2]"])
    assert said.exit_code == 2
    assert said.stderr.splitlines()[-1].endswith(f"master 'locl[2]' is none that Spark knows: {FORMS}")
    said = CliRunner().invoke(main, ["pipeline", "verify", str(tmp_path), "--master", "spark://127.0.0.1:1"])
    assert (said.exit_code, said.stderr) == (4, "main pipeline verify: no Spark master answers at 127.0.0.1:1\n")
