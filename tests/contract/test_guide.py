"""The programs on pages for users: each snippet runs and prints what the page shows."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocketq.testing.embedded import EmbeddedCluster

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "tutorial.md", *sorted(DOCS.glob("guide/*.md")), *sorted(DOCS.glob("how-to/*.md"))]
ADDR = "127.0.0.1:9876"
SNIPPET_SECONDS_MAX = 90
SETTINGS = {"transactionTimeOut": "500", "transactionCheckInterval": "500", "traceTopicEnable": "true"}
_BLOCK = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A ```python block, and the ```text block right behind it; `...` in that stands for anything."""

    page: str
    line: int
    code: str
    printed: str | None


def snippets(page: Path) -> Iterator[Snippet]:
    """Blocks marked `python notest` are parts of programs, for reading only."""
    text = page.read_text()
    blocks = list(_BLOCK.finditer(text))
    for block, following in itertools.zip_longest(blocks, blocks[1:]):
        kind, mark, code = block.groups()
        if kind != "python" or "notest" in mark:
            continue
        printed = None
        if following is not None and following.group(1) == "text" and not text[block.end() : following.start()].strip():
            printed = following.group(3)
        yield Snippet(page.name, text.count("\n", 0, block.start()) + 1, code, printed)


ALL = [snippet for page in PAGES for snippet in snippets(page)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(settings=SETTINGS) as running:
        yield running


@pytest.mark.parametrize("snippet", ALL, ids=lambda snippet: f"{snippet.page}:{snippet.line}")
def test_what_a_page_shows_works(snippet: Snippet, cluster: EmbeddedCluster, tmp_path: Path) -> None:
    """Goal: whoever copies a snippet has a program that works, and that leaves nothing in the home folder."""
    home = tmp_path / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-"],
        input=snippet.code.replace(ADDR, cluster.name_server_addr),
        env={**os.environ, "NAMESRV_ADDR": cluster.name_server_addr, "HOME": str(home)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=SNIPPET_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(home.iterdir()) == []
    if snippet.printed is not None:
        pattern = ".*".join(re.escape(part) for part in snippet.printed.split("..."))
        assert re.fullmatch(pattern, done.stdout, re.DOTALL), done.stdout


def test_there_are_snippets() -> None:
    pages = {"send.md", "order.md", "delay.md", "transaction.md", "consume.md", "order-consume.md", "reset.md"}
    assert {*pages, "duplicates.md"} <= {snippet.page for snippet in ALL}
