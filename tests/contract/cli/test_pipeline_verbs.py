"""`rocketq pipeline`: what is said before Spark is started, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from rocketq.cli.commands import pipeline_calling
from rocketq.cli.commands.pipeline import VERBS
from rocketq.cli.commands.pipeline_calling import Pipeline, told
from rocketq.cli.commands.pipeline_progress import BAR_CHARS, bar_text
from rocketq.cli.commands.pipeline_views import row_json
from rocketq.cli.main import main
from rocketq.spark.errors import AwayError, OptionError, SparkError
from rocketq.spark.sink_options import of_sink, of_source

from .conftest import RunCommand, call

ASKING = [
    ("dlq",),
    ("trace",),
    ("lag",),
    ("replay", "--from-dlq", "g"),
    ("replay", "--from-topic", "T", "--to", "U"),
]


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: whoever starts Spark here has forgotten to look first."""

    def refuse(self: Pipeline, label: str) -> Any:
        raise AssertionError(f"{label} has started Spark")

    monkeypatch.setattr(Pipeline, "_session", refuse)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_has_help_with_an_example(verb: str) -> None:
    said = CliRunner().invoke(main, ["pipeline", verb, "--help"])
    assert said.exit_code == 0
    assert f"rocketq pipeline {verb}" in said.output.partition("Example:")[2]


def test_the_list_of_verbs_cuts_nothing_off() -> None:
    said = CliRunner().invoke(main, ["pipeline", "--help"], terminal_width=80)
    listed = said.output.partition("Commands:")[2].splitlines()
    assert {line.split()[0] for line in listed if line.strip()} == set(VERBS)
    assert not [line for line in listed if line.endswith("...")]


@pytest.mark.parametrize("arguments", ASKING, ids=" ".join)
def test_without_a_name_server_every_verb_says_unreachable(arguments: tuple[str, ...], nobody: str) -> None:
    said = call(nobody, "pipeline", *arguments)
    assert (said.code, said.out) == (4, "")
    assert nobody in said.err
    assert len(said.err.splitlines()) == 1
    fault = json.loads(call(nobody, "pipeline", *arguments, "--json").err)
    assert (fault["error"], fault["retriable"]) == ("UnreachableError", True)


@pytest.mark.parametrize(
    "arguments",
    [
        ("dlq", "no-such-group"),
        ("lag", "no-such-group"),
        ("trace", "--topic", "no-such-topic"),
        ("replay", "--from-dlq", "no-such-group"),
        ("replay", "--from-topic", "no-such-topic", "--to", "BenchmarkTest"),
        ("replay", "--from-topic", "BenchmarkTest", "--to", "no-such-topic"),
        ("replay", "--from-archive", "/no/such/archive", "--to", "BenchmarkTest"),
        ("archive", "no-such-topic", "--to", "/no/such/archive"),
        ("archive", "--compact", "--to", "/no/such/archive"),
        ("archive", "--from-store", "/no/such/store", "--broker", "b", "--to", "/no/such/archive"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_said_before_spark_starts(rocketq: RunCommand, arguments: tuple[str, ...]) -> None:
    said = rocketq("pipeline", *arguments)
    assert (said.code, said.out) == (3, "")
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("dlq",),
        ("trace", "--topic", "BenchmarkTest"),
        ("archive", "BenchmarkTest", "--to", "a"),
        ("archive", "--pattern", "B.*", "--to", "a"),
        ("replay", "--from-topic", "BenchmarkTest", "--to", "SELF_TEST_TOPIC"),
    ],
    ids=" ".join,
)
def test_a_slip_in_an_option_is_told_before_spark_starts(rocketq: RunCommand, arguments: tuple[str, ...]) -> None:
    said = rocketq("pipeline", *arguments, "--option", "startingOfsets=earliest")
    assert (said.code, said.out) == (2, "")
    assert said.err.endswith(": option startingofsets is unknown; did you mean startingOffsets?\n")


def test_without_a_trace_topic_it_is_told_which_setting_makes_one(rocketq: RunCommand) -> None:
    said = rocketq("pipeline", "trace")
    line = "topic RMQ_SYS_TRACE_TOPIC was not found: brokers with traceTopicEnable=true have it"
    assert (said.code, said.err) == (3, f"main pipeline trace: {line}\n")


def test_a_replay_takes_options_of_the_source_and_of_the_sink() -> None:
    """Goal: each goes where it belongs, what reaches brokers to both, and what nobody knows is refused."""
    given = {"nameServer": "a:1", "pullBatchSize": "9", "sendRetries": "2", "rocketmq.accessKey": "k", "slip": "x"}
    assert of_source(given) == {name: value for name, value in given.items() if name != "sendRetries"}
    assert of_sink(given) == {name: value for name, value in given.items() if name != "pullBatchSize"}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("replay",), "give one of --from-topic, --from-dlq and --from-archive"),
        (("replay", "--from-topic", "T", "--from-dlq", "g"), "give one of"),
        (("replay", "--from-topic", "T"), "another topic"),
        (("replay", "--from-topic", "T", "--to", "T"), "another topic"),
        (("replay", "--from-dlq", "g", "--rate", "0"), "--rate"),
        (("replay", "--from-dlq", "g", "--dry-run", "--checkpoint", "c"), "--checkpoint"),
        (("dlq", "--report", "r.pdf"), "neither with .html nor with .png"),
        (("dlq", "--conf", "nonsense"), "'nonsense' is not KEY=VALUE"),
        (("dlq", "--since", "yesterday"), "is no moment"),
        (("dlq", "--out", "/tmp"), "/tmp is there already: name a folder that is not"),
        (("trace", "--out", "/tmp"), "/tmp is there already: name a folder that is not"),
        (("lag", "--count", "0"), "--count"),
        (("dlq", "-n", "nonsense"), "nonsense"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_wrong_usage_is_told(rocketq: RunCommand, arguments: tuple[str, ...], line: str) -> None:
    said = rocketq("pipeline", *arguments)
    assert (said.code, said.out) == (2, "")
    assert line in said.err


def test_without_the_extra_one_line_says_what_to_install(rocketq: RunCommand, monkeypatch: pytest.MonkeyPatch) -> None:
    found = pipeline_calling.importlib.util.find_spec
    monkeypatch.setattr(
        pipeline_calling.importlib.util, "find_spec", lambda name: None if name == "pyspark" else found(name)
    )
    said = rocketq("pipeline", "dlq")
    assert (said.code, said.out) == (1, "")
    assert said.err == "main pipeline dlq: pyspark is not installed: pip install 'rocketq[spark]'\n"


def test_help_and_other_verbs_import_no_spark() -> None:
    """Goal: `rocketq topic list` stays as fast as it is, and help works without the extra."""
    code = (
        "import sys; from click.testing import CliRunner; from rocketq.cli.main import main\n"
        f"for verb in {sorted(VERBS)!r}: assert CliRunner().invoke(main, ['pipeline', verb, '-h']).exit_code == 0\n"
        "print([name for name in ('pyspark', 'pyarrow', 'matplotlib', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_lag_needs_no_spark_unless_there_is_a_table_to_write(rocketq: RunCommand, topic: str, group: str) -> None:
    rocketq("topic", "create", topic, "--queues", "1")
    rocketq("send", topic, "one")
    rocketq("group", "set", group)
    rocketq("offset", "set", group, topic, "0", "--queue", "broker-0:0")
    said = rocketq("pipeline", "lag", group, "--count", "2", "--every", "0.1", "--json")
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert (said.code, len(lines)) == (0, 2)
    assert {"topic": topic, "broker": "broker-0", "queue_id": 0, "committed": 0, "max": 1, "lag": 1}.items() <= lines[
        0
    ].items()
    text = rocketq("pipeline", "lag", group, "--count", "2", "--every", "0.1").out.splitlines()
    assert len(text) == 3
    assert text[0].split()[:3] == ["AT", "GROUP", "LAG"]


def test_a_lag_report_is_a_page_with_a_picture(rocketq: RunCommand, group: str, topic: str, tmp_path: Path) -> None:
    rocketq("topic", "create", topic)
    rocketq("group", "set", group)
    rocketq("offset", "set", group, topic, "0", "--queue", "broker-0:0")
    said = rocketq("pipeline", "lag", group, "--report", str(tmp_path / "lag.html"))
    assert said.code == 0
    page = (tmp_path / "lag.html").read_text()
    assert group in page
    assert "data:image/png" in page


# spark-pipelines


def test_a_project_is_made_once(rocketq: RunCommand, tmp_path: Path) -> None:
    folder = tmp_path / "watch"
    said = rocketq("pipeline", "init", str(folder), "-n", "10.0.0.1:9876;10.0.0.2:9876", "--json")
    assert said.code == 0
    spec = yaml.safe_load((folder / "spark-pipeline.yml").read_text())
    assert spec["configuration"]["rocketq.nameServer"] == "10.0.0.1:9876;10.0.0.2:9876"
    assert Path(spec["storage"].removeprefix("file://")).is_dir()
    made = sorted(path.name for path in (folder / "transformations").iterdir())
    assert made == ["dead_letters.py", "lag.py", "replay.py", "trace.py"]
    again = rocketq("pipeline", "init", str(folder))
    assert (again.code, again.out) == (2, "")
    assert "is there already" in again.err


# errors and views


def test_of_what_spark_says_one_line_is_left() -> None:
    """Goal: ours where Python raised it, with its kind; else Spark's first."""
    text = (
        "[PYTHON_DATA_SOURCE_ERROR] Failed to read\nTraceback (most recent call last):\n  File ...\n"
        "rocketq.spark.errors.AwayError: topic T on b: 127.0.0.1:1: no connection\n\tat org.apache.spark\n"
    )
    fault = told(RuntimeError(text))
    assert (type(fault), str(fault)) == (AwayError, "topic T on b: 127.0.0.1:1: no connection")
    fault = told(RuntimeError("\n[PATH_ALREADY_EXISTS] Path x already exists.\nJVM stacktrace:\n..."))
    assert (type(fault), str(fault)) == (SparkError, "[PATH_ALREADY_EXISTS] Path x already exists.")
    assert str(told(ValueError())) == "ValueError"


@pytest.mark.parametrize(("error", "code"), [(AwayError("x"), 4), (OptionError("x"), 2), (SparkError("x"), 1)])
def test_errors_of_spark_end_with_the_code_they_stand_for(
    rocketq: RunCommand, monkeypatch: pytest.MonkeyPatch, error: SparkError, code: int
) -> None:
    def fail(self: Pipeline, label: str) -> Any:
        raise error

    monkeypatch.setattr(Pipeline, "_session", fail)
    said = rocketq("pipeline", "dlq")
    assert (said.code, said.err) == (code, "main pipeline dlq: x\n")


def test_names_and_moments_in_json_are_as_everywhere() -> None:
    from datetime import UTC, datetime  # noqa: PLC0415

    at = datetime(2026, 1, 1, tzinfo=UTC)
    made = row_json({"firstDiedAt": at, "at": at, "p50Ms": 3, "brokerName": "b", "lastError": None, "body": b"x"})
    assert made == {
        "first_died_ms": 1_767_225_600_000,
        "at_ms": 1_767_225_600_000,
        "p50_ms": 3,
        "broker_name": "b",
        "last_error": None,
        "body": "x",
    }


def test_the_bar_says_what_is_known() -> None:
    assert bar_text("dlq", 0, 0) == "dlq ..."
    assert bar_text("dlq", 1, 2) == f"dlq [{'#' * (BAR_CHARS // 2)}{'-' * (BAR_CHARS // 2)}] 1 of 2 tasks"
    assert bar_text("dlq", 3, 2).count("#") == BAR_CHARS
