"""One cluster for all verbs here, and a way to call them."""

from __future__ import annotations

import itertools
import json
import re
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from rocketq.cli.main import main
from rocketq.testing.embedded import EmbeddedCluster

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Said:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


RunCommand = Callable[..., Said]


@pytest.fixture(scope="package")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        yield running


def call(name_servers: str | None, *arguments: str, stdin: str | bytes | None = None) -> Said:
    """As typed; without NameServers the environment has none either."""
    result = CliRunner().invoke(main, arguments, input=stdin, env={"NAMESRV_ADDR": name_servers})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def rocketq(cluster: EmbeddedCluster) -> RunCommand:
    """A command against the cluster, which it finds through NAMESRV_ADDR."""

    def run(*arguments: str, stdin: str | bytes | None = None) -> Said:
        return call(cluster.name_server_addr, *arguments, stdin=stdin)

    return run


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name of the test's own; the topic does not exist yet."""
    return f"V{next(_NUMBERS)}-{re.sub('[^a-zA-Z0-9]', '-', request.node.name)}"[:80]


@pytest.fixture
def group(topic: str) -> str:
    return f"G-{topic}"


@pytest.fixture
def nobody() -> str:
    """An address of this host where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return f"127.0.0.1:{probe.getsockname()[1]}"
