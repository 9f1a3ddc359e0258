"""Reports: pages that need nothing else, pictures without a display, and no markup from messages."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from matplotlib.dates import num2date
from matplotlib.figure import Figure

from rocketq.spark.errors import OptionError
from rocketq.spark.pipelines import reports
from rocketq.spark.pipelines.reports import CELL_CHARS_MAX, Plot, Report, Table, bars, cell, grouped_bars, lines, save

PNG = b"\x89PNG\r\n\x1a\n"
TABLE = Table("Causes", ["group", "messages"], [["billing", 3], ["<script>", 1]])


def test_a_page_holds_tables_and_pictures_and_takes_no_markup_from_data() -> None:
    """Goal: error texts come from anywhere."""
    page = Report("Dead <letters>", "2 groups", [TABLE], [Plot("by & by", PNG)]).to_html()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "Dead &lt;letters&gt;" in page
    assert "data:image/png;base64,iVBORw0KGgo" in page
    assert "<td class=n>3</td>" in page


def test_an_empty_table_says_so() -> None:
    assert "nothing" in Report("t", "s", [Table("Causes", ["a"], [])]).to_html()


def test_the_ending_of_the_name_decides(tmp_path: Path) -> None:
    report = Report("t", "s", [TABLE], [Plot("p", PNG)])
    assert save(report, tmp_path / "new" / "r.html").read_text().startswith("<!doctype html>")
    assert save(report, tmp_path / "r.PNG").read_bytes() == PNG
    with pytest.raises(OptionError, match=r"\.html or \.png, not 'r\.pdf'"):
        save(report, tmp_path / "r.pdf")
    with pytest.raises(OptionError, match="nothing to plot"):
        save(Report("t", "s", [TABLE]), tmp_path / "r2.png")


def test_a_notebook_shows_a_report_and_keeps_its_own_style(tmp_path: Path) -> None:
    """Goal: the last line of a cell is enough, no bytes are printed, and nothing else of the page changes its looks."""
    report = Report("Dead <letters>", "2 groups", [TABLE], [Plot("p", PNG)])
    shown = report._repr_html_()
    assert "Dead &lt;letters&gt;" in shown
    assert "data:image/png;base64,iVBORw0KGgo" in shown
    assert "<body" not in shown
    rules = re.findall(r"([^{}]+){[^}]*}", shown.partition("<style>")[2].partition("</style>")[0])
    assert rules
    assert all(name.startswith(".rocketq-report ") for rule in rules for name in rule.split(","))
    assert "PNG" not in repr(report)
    assert report.plots[0]._repr_png_() == PNG
    assert save(report, str(tmp_path / "r.png")).read_bytes() == PNG


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (True, "yes"),
        (1234.56, "1,234.6"),
        (b"a\nb", "a b"),
        (datetime(2026, 1, 2, 3, 4, 5, 6_000, UTC), "2026-01-02 03:04:05.006+00:00"),
    ],
)
def test_a_cell_is_one_line(value: object, text: str) -> None:
    assert cell(value) == text


def test_a_long_cell_is_cut() -> None:
    assert len(cell("x" * 999)) == CELL_CHARS_MAX


def test_one_moment_is_shown_with_the_minute_around_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: not with the years around it, as matplotlib does by itself."""
    drawn: list[Figure] = []
    monkeypatch.setattr(reports, "_png", lambda figure: drawn.append(figure) or b"")
    at = datetime(2026, 11, 16, 10, 0, tzinfo=UTC)
    lines("Lag", {"a": [(at, 9.0)], "b": [(at, 1.0)]}, "messages")
    left, right = map(num2date, drawn[0].axes[0].get_xlim())
    assert (right - left).total_seconds() == pytest.approx(60, abs=1)
    assert left < at < right


def test_pictures_are_made_without_a_display(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: names from messages (with $ and newlines), many of them, none of them."""
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("MPLBACKEND", "agg")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    names = [(f"cost ${n}_{{ of\n{'x' * n}", float(n)) for n in range(30)]
    assert bars("t", names, "messages").startswith(PNG)
    assert bars("t", [], "messages").startswith(PNG)
    assert grouped_bars("t", [("a", [1.0, 2.0]), ("b", [3.0, 4.0])], ["p50", "p99"], "ms").startswith(PNG)
    assert lines("t", {"g": [(now, 1.0)], "h": []}, "messages").startswith(PNG)
    assert lines("t", {}, "messages").startswith(PNG)
