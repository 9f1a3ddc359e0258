"""docs/reference/cli.md is right: its examples run, in their order, and no verb is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.testing.embedded import EmbeddedCluster

from .conftest import call
from .test_exit_codes import VERBS, _command_path

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "cli.md").read_text(encoding="utf-8")


def test_the_examples_run(make_rocketq_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_rocketq_cluster()
    found = re.findall(r"^\$ rocketq (.*)$", PAGE, re.MULTILINE)
    assert len(found) > 20
    message_id = call(cluster.name_server_addr, "send", "Orders", "first", "--json").json["message_id"]
    for line in found:
        arguments = [message_id if word == "ID" else word for word in shlex.split(line)]
        said = call(cluster.name_server_addr, *arguments)
        assert (said.code, said.err) == (0, ""), (line, said)


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_every_verb_is_told_of(arguments: tuple[str, ...]) -> None:
    path = _command_path(arguments)
    assert re.search(r"\b.*\b".join(path), PAGE)


def test_the_python_example_runs(make_rocketq_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_rocketq_cluster()
    call(cluster.name_server_addr, "group", "set", "billing")
    (snippet,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(snippet.replace("127.0.0.1:9876", cluster.name_server_addr), "docs/reference/cli.md", "exec"), {})
