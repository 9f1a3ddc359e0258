"""The pages of the pipelines: every snippet runs, in its order, and prints what the page says."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketq.cli.commands.pipeline import VERBS
from rocketq.testing import EmbeddedCluster
from tests.contract.test_guide import ADDR, snippets

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "spark"


@pytest.mark.parametrize("page", ["dlq.md", "replay.md", "trace.md", "lag.md"])
def test_a_page_works_from_top_to_bottom(
    spark: SparkSession, cluster: EmbeddedCluster, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whoever copies the snippets has programs that work; later ones use what earlier ones made."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    found = list(snippets(DOCS / page))
    assert any(snippet.printed for snippet in found)
    for snippet in found:
        code = snippet.code.replace(ADDR, cluster.name_server_addr)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{snippet.page}:{snippet.line}", "exec"), names)
        if snippet.printed is not None:
            assert printed.getvalue() == snippet.printed, snippet.line


def test_the_spark_snippet_of_the_readme_works(
    spark: SparkSession, cluster: EmbeddedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    (snippet,) = (each for each in snippets(ROOT / "README.md") if "rocketq.spark" in each.code)
    code = snippet.code.replace(ADDR, cluster.name_server_addr).replace("Orders", "OrdersOfTheReadme")
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out.count("|    5|") == 2


def test_every_pipeline_has_its_page_and_is_in_the_table() -> None:
    text = (DOCS / "pipelines.md").read_text()
    for verb in sorted(set(VERBS) - {"init"}):
        assert f"[{verb}.md]({verb}.md)" in text
        assert f"rocketq pipeline {verb}" in (DOCS / f"{verb}.md").read_text(), verb
