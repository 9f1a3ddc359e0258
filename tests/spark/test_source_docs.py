"""The page about the source: every snippet runs in a session, and prints what the page says it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketq.spark.options import Options, parse_source
from rocketq.testing import EmbeddedCluster
from tests.contract.test_guide import ADDR, snippets

PAGE = Path(__file__).parents[2] / "docs" / "spark" / "source.md"


def test_the_page_works_from_top_to_bottom(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whoever copies the snippets has programs that work; later ones use what earlier ones made."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    shown = list(snippets(PAGE))
    assert len(shown) >= 6
    for snippet in shown:
        code = snippet.code.replace(ADDR, cluster.name_server_addr).replace('"orders.', f'"{tmp_path}/orders.')
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{snippet.page}:{snippet.line}", "exec"), names)
        if snippet.printed is not None:
            assert printed.getvalue() == snippet.printed, snippet.line


def test_every_option_is_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the table of options and the code agree, both ways."""
    asked: set[str] = set()
    monkeypatch.setattr(Options, "refuse_unknown", lambda self: asked.update(self._asked.values()))
    parse_source({"nameServer": "a:1", "subscribe": "T"}, streaming=True)
    table = PAGE.read_text().partition("## Options")[2]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    told = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert told == asked - {"path", "paths"}
