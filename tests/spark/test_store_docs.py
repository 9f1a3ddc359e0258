"""The pages about store files, sessions, archives and verification: every snippet runs and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from rocketq.spark.commitlog_options import parse_commitlog
from rocketq.spark.options import Options
from rocketq.testing import EmbeddedCluster
from tests.contract.test_guide import ADDR, snippets

DOCS = Path(__file__).parents[2] / "docs" / "spark"


@pytest.mark.parametrize("page", ["store-reader.md", "setup.md", "notebooks.md", "archive.md", "verify.md"])
def test_a_page_works_from_top_to_bottom(
    spark: SparkSession, cluster: EmbeddedCluster, page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: whoever copies the snippets has programs that work; later ones use what earlier ones made."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"spark": spark}
    for snippet in snippets(DOCS / page):
        code = snippet.code.replace(ADDR, cluster.name_server_addr)
        code = code.replace('load("copy")', f'load("{tmp_path}/copy")')  # the JVM's own folder is another
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"{snippet.page}:{snippet.line}", "exec"), names)
        if snippet.printed is not None and snippet.printed != "...\n":
            assert printed.getvalue() == snippet.printed, snippet.line


def test_every_option_is_in_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the table of options and the code agree, both ways."""
    asked: set[str] = set()
    monkeypatch.setattr(Options, "refuse_unknown", lambda self: asked.update(self._asked.values()))
    parse_commitlog({"path": "/a"})
    table = (DOCS / "store-reader.md").read_text().partition("## Options")[2].partition("## Damage")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    told = {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    assert told == asked - {"path", "paths"}
