"""How verbs end when they cannot do what was asked: 1 failed, 2 usage, 3 not found, 4 unreachable."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
import pytest
from click.testing import CliRunner

from rocketq.cli.commands.calling import exit_code
from rocketq.cli.commands.times import parse_moment
from rocketq.cli.main import COMMANDS, main
from rocketq.client.errors import NotFoundError, PartlyFailedError
from rocketq.errors import UnreachableError
from rocketq.protocol.bodies.registration import Registration
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.frame import encode_command
from rocketq.protocol.headers.nameserver import RegisterBrokerRequest
from rocketq.protocol.requests import make_request
from rocketq.testing.embedded import EmbeddedCluster

from .conftest import RunCommand, call

NO_ID = "0A00000100002A9F000000000012D687"

VERBS = [
    ("send", "T", "body"),
    ("tail", "T"),
    ("bench", "send", "T"),
    ("bench", "consume", "T"),
    ("topic", "create", "T"),
    ("topic", "list"),
    ("topic", "show", "T"),
    ("topic", "stats", "T"),
    ("topic", "delete", "T", "--yes"),
    ("group", "list"),
    ("group", "status", "g"),
    ("group", "set", "g"),
    ("group", "delete", "g", "--yes"),
    ("group", "reset", "g", "T", "--to-latest"),
    ("cluster", "show"),
    ("message", "get", NO_ID),
    ("message", "query", "T", "--key", "k"),
    ("message", "resend", NO_ID),
    ("offset", "get", "g", "T"),
    ("offset", "set", "g", "T", "1", "--queue", "b:0"),
    ("timer", "list"),
    ("timer", "cancel", "djEgVCBiIDEgaw=="),
    ("transaction", "list"),
    ("broker", "status", "b"),
    ("broker", "config", "get", "b"),
    ("broker", "config", "set", "b", "k=v"),
]

every_verb = pytest.mark.parametrize("arguments", VERBS, ids=" ".join)


@every_verb
def test_without_a_name_server_every_verb_says_unreachable(arguments: tuple[str, ...], nobody: str) -> None:
    said = call(nobody, *arguments)
    assert (said.code, said.out) == (4, "")
    assert nobody in said.err
    assert "`rocketq up` starts one" in said.err
    as_json = call(None, *arguments, "-n", f"{nobody};{nobody}", "--json")
    assert as_json.code == 4
    fault = json.loads(as_json.err)
    assert (fault["error"], fault["retriable"]) == ("UnreachableError", True)


@every_verb
def test_a_wrong_address_is_wrong_usage(arguments: tuple[str, ...]) -> None:
    assert call(None, *arguments, "-n", "nonsense").code == 2


@every_verb
def test_every_verb_has_help_with_an_example(arguments: tuple[str, ...]) -> None:
    path = _command_path(arguments)
    said = CliRunner().invoke(main, [*path, "--help"])
    assert said.exit_code == 0
    assert "Example:\n  " in said.output
    assert "rocketq " + " ".join(path) in said.output.partition("Example:")[2]


@pytest.mark.parametrize("server", ["up", "namesrv", "broker"])
def test_servers_have_help_with_an_example_too(server: str) -> None:
    said = CliRunner().invoke(main, [server, "--help"])
    assert f"Example:\n    rocketq {server}" in said.output


def _command_path(arguments: tuple[str, ...]) -> list[str]:
    """The names of the verb alone."""
    command: click.Command | None = main
    path: list[str] = []
    for name in arguments:
        if not isinstance(command, click.Group):
            break
        command = command.get_command(click.Context(command), name)
        path.append(name)
    return path


def test_all_verbs_are_there() -> None:
    assert {"send", "tail", "topic", "group", "cluster", "message", "offset", "broker"} <= COMMANDS.keys()


@pytest.mark.parametrize(
    "arguments",
    [
        ("tail", "no-such-topic"),
        ("topic", "show", "no-such-topic"),
        ("topic", "stats", "no-such-topic"),
        ("topic", "delete", "no-such-topic", "--yes"),
        ("topic", "create", "T", "--cluster", "nowhere"),
        ("topic", "create", "T", "--broker", "nobody"),
        ("topic", "list", "--cluster", "nowhere"),
        ("group", "status", "no-such-group"),
        ("group", "set", "g", "--broker", "nobody"),
        ("group", "delete", "no-such-group", "--yes"),
        ("group", "reset", "no-such-group", "BenchmarkTest", "--to-latest"),
        ("group", "reset", "TOOLS_CONSUMER", "no-such-topic", "--to-latest"),
        ("message", "get", NO_ID),
        ("message", "get", NO_ID, "-t", "BenchmarkTest"),
        ("message", "get", NO_ID, "-t", "no-such-topic"),
        ("message", "query", "no-such-topic", "--key", "k"),
        ("message", "query", "BenchmarkTest", "--key", "k"),
        ("message", "resend", NO_ID),
        ("send", "BenchmarkTest", "body", "--queue", "nobody:0"),
        ("offset", "get", "g", "no-such-topic"),
        ("offset", "set", "g", "BenchmarkTest", "1", "--queue", "nobody:0"),
        ("offset", "set", "g", "BenchmarkTest", "1", "--queue", "broker-0:9999"),
        ("broker", "status", "nobody"),
        ("broker", "config", "get", "nobody"),
        ("broker", "config", "get", "broker-0", "nobodyKnows"),
        ("broker", "config", "set", "broker-0", "nobodyKnows=1"),
    ],
    ids=" ".join,
)
def test_what_is_not_there_is_not_found(rocketq: RunCommand, arguments: tuple[str, ...]) -> None:
    said = rocketq(*arguments)
    assert said.code == 3, said
    assert said.err or said.out == "none\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ("send",),
        ("send", "T", "body", "--lines"),
        ("send", "T", "body", "--queue", "nonsense"),
        ("send", "T", "body", "--property", "nonsense"),
        ("send", "T", "body", "--timeout", "nan"),
        ("send", "a/b", "body"),
        ("tail", "T", "--for", "inf"),
        ("tail", "T", "--from", "99999999999999999999"),
        ("tail", "T", "--from", "yesterday"),
        ("tail", "T", "--count", "0"),
        ("topic",),
        ("topic", "make", "T"),
        ("topic", "create", "bad name"),
        ("topic", "create", "T", "--queues", "0"),
        ("topic", "create", "T", "--perm", "x"),
        ("topic", "create", "T", "--attribute", "nonsense"),
        ("group", "set", "bad name"),
        ("group", "reset", "g", "T"),
        ("group", "reset", "g", "T", "--to-latest", "--to-earliest"),
        ("group", "reset", "g", "T", "--to-time", "soon"),
        ("group", "reset", "g", "T", "--to-latest", "--queue", "x"),
        ("message", "query", "T"),
        ("message", "query", "T", "--key", "a", "--unique-key", "b"),
        ("offset", "set", "g", "T", "1"),
        ("offset", "set", "g", "T", "-1", "--queue", "b:0"),
        ("broker", "status"),
        ("broker", "-n", "127.0.0.1:1", "status", "b"),
        ("broker", "config", "set", "b"),
        ("broker", "config", "set", "b", "nonsense"),
        ("broker", "nonsense"),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_said_before_anything_is_asked(rocketq: RunCommand, arguments: tuple[str, ...]) -> None:
    said = rocketq(*arguments)
    assert said.code == 2, said
    assert said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("send", "SCHEDULE_TOPIC_XXXX", "body"),
        ("send", "T"),
        ("topic", "create", "TBW102"),
        ("broker", "config", "set", "broker-0", "brokerName=other"),
    ],
    ids=" ".join,
)
def test_what_is_refused_has_failed(rocketq: RunCommand, arguments: tuple[str, ...]) -> None:
    said = rocketq(*arguments, stdin="")
    assert said.code == 1, said
    assert said.err


def test_a_broker_that_is_gone_is_unreachable(rocketq: RunCommand, nobody: str) -> None:
    for verb in (("broker", "status", nobody), ("topic", "create", "T", "--broker", nobody)):
        said = rocketq(*verb)
        assert said.code == 4
        assert nobody in said.err
        assert "rocketq up" not in said.err


def test_a_broker_that_is_registered_but_gone_is_unreachable(
    make_rocketq_cluster: Callable[..., EmbeddedCluster], nobody: str
) -> None:
    """Goal: what is known without it is still shown, with the reason beside it."""
    name_servers = make_rocketq_cluster(brokers=0).name_server_addr
    with registered(name_servers, nobody):
        for verb in (("broker", "status", "gone"), ("topic", "stats", "T"), ("group", "list"), ("send", "T", "x")):
            assert call(name_servers, *verb).code == 4
        assert call(name_servers, "topic", "list").out == "T\n"
        shown = call(name_servers, "cluster", "show", "--json")
        assert shown.code == 0
        (row,) = shown.json["brokers"]
        assert (row["address"], row["put_tps"]) == (nobody, None)
        assert nobody in row["error"]
        assert "?" in call(name_servers, "cluster", "show").out


@contextmanager
def registered(name_server: str, addr: str) -> Iterator[None]:
    """A broker on paper, for as long as the connection lasts that told of it."""
    table = TopicConfigTable(topics={"T": TopicConfig(topic="T", read_queue_count=1, write_queue_count=1)})
    header = RegisterBrokerRequest(broker_name="gone", broker_addr=addr, cluster="C", broker_id=0)
    request = make_request(header, opaque=1, body=Registration(topics=table).encode())
    host, _, port = name_server.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as link:
        link.sendall(encode_command(request))
        assert link.recv(4)
        yield


def test_codes_of_several_failures() -> None:
    gone, missing = UnreachableError("a:1", "gone"), NotFoundError("topic", "T")
    assert exit_code(PartlyFailedError({"a": gone, "b": gone}, [])) == 4
    assert exit_code(PartlyFailedError({"a": gone}, ["b"])) == 1
    assert exit_code(PartlyFailedError({"a": gone, "b": missing}, [])) == 1


NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("now", NOW_MS),
        ("90s", NOW_MS - 90_000),
        ("2h", NOW_MS - 7_200_000),
        ("1d", NOW_MS - 86_400_000),
        ("1700000000000", 1_700_000_000_000),
        ("0", 0),
        ("2026-11-15T10:00:00+00:00", 1_794_736_800_000),
        ("17", None),
        ("9" * 19, None),
        ("9" * 10 + "d", None),
        ("yesterday", None),
        ("", None),
        ("5y", None),
    ],
)
def test_moments(text: str, moment: int | None) -> None:
    assert parse_moment(text, NOW_MS) == moment


def _heed_interrupts() -> None:
    """A suite that runs in the background of a shell ignores them, and its children would too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_watching_ends_well_with_an_interrupt(cluster: EmbeddedCluster, rocketq: RunCommand, topic: str) -> None:
    rocketq("topic", "create", topic, "--queues", "1")
    rocketq("send", topic, "seen")
    child = subprocess.Popen(
        [sys.executable, "-m", "rocketq", "tail", topic, "--from", "earliest"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "NAMESRV_ADDR": cluster.name_server_addr, "PYTHONUNBUFFERED": "1"},
        preexec_fn=_heed_interrupts,  # noqa: PLW1509 - it takes no lock
    )
    try:
        assert child.stdout is not None
        assert "seen" in child.stdout.readline()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    finally:
        child.kill()
        child.communicate()
    assert (child.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize(
    ("files", "code", "said"),
    [("<&- >&- 2>&-", 0, ""), (">/dev/full", 1, "rocketq topic: [Errno 28] No space left on device\n")],
    ids=["closed", "full"],
)
def test_output_that_goes_nowhere_is_no_crash(cluster: EmbeddedCluster, files: str, code: int, said: str) -> None:
    """Goal: supervisors close standard files, and disks of logs fill up."""
    words = f"{sys.executable} -m rocketq topic list --all -n {cluster.name_server_addr} {files}"
    ran = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False, timeout=100)
    assert (ran.returncode, ran.stderr) == (code, said)
