"""The pages about the sink and its guarantees: every snippet runs in a session, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketq.spark.options import Options
from rocketq.spark.sink_options import parse_sink
from rocketq.spark.sink_schema import COLUMNS
from rocketq.testing import EmbeddedCluster
from tests.contract.test_guide import ADDR, snippets

PAGES = Path(__file__).parents[2] / "docs" / "spark"


@pytest.mark.parametrize(("page", "count"), [("sink.md", 3), ("guarantees.md", 1)])
def test_a_page_works_from_top_to_bottom(
    spark: SparkSession, cluster: EmbeddedCluster, tmp_path: Path, page: str, count: int
) -> None:
    """Goal: whoever copies the snippets has programs that work; later ones use what earlier ones made."""
    names: dict[str, Any] = {"spark": spark}
    shown = list(snippets(PAGES / page))
    assert len(shown) == count
    for snippet in shown:
        code = snippet.code.replace(ADDR, cluster.name_server_addr).replace('"/tmp/', f'"{tmp_path}/')
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{snippet.page}:{snippet.line}", "exec"), names)
        if snippet.printed is not None:
            assert printed.getvalue() == snippet.printed, snippet.line


def test_every_option_and_column_is_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the tables and the code agree, both ways."""
    asked: set[str] = set()
    monkeypatch.setattr(Options, "refuse_unknown", lambda self: asked.update(self._asked.values()))
    parse_sink({"nameServer": "a:1", "topic": "T"}, streaming=True)
    text = (PAGES / "sink.md").read_text()
    assert _first_cells(text.partition("## Options")[2]) == asked
    assert _first_cells(text.partition("| column |")[2].partition("\n\n")[0]) == set(COLUMNS)


def _first_cells(table: str) -> set[str]:
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
