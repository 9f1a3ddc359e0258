"""What pipelines found, for people: tables and plots as one HTML page, a PNG, or text. Pure but for `save`."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rocketq.spark.errors import OptionError

CELL_CHARS_MAX: Final = 160
_STYLE: Final = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1c2430}"
    "table{border-collapse:collapse;margin:.5em 0 2em;font-variant-numeric:tabular-nums}"
    "th,td{padding:.25em .8em;border-bottom:1px solid #d5dbe3;text-align:left;vertical-align:top}"
    "th{border-bottom:2px solid #8793a3}td.n{text-align:right}img{max-width:100%}.none{color:#697586}"
)


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    png: bytes


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    subtitle: str
    tables: Sequence[Table]
    plots: Sequence[Plot] = ()

    def to_html(self) -> str:
        """One file that needs nothing else."""
        parts = [
            f"<h1>{html.escape(self.title)}</h1>",
            f"<p>{html.escape(self.subtitle)}</p>",
            *(_plot_html(plot) for plot in self.plots),
            *(_table_html(table) for table in self.tables),
        ]
        head = f'<meta charset="utf-8"><title>{html.escape(self.title)}</title><style>{_STYLE}</style>'
        return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(parts)}</body></html>\n'


def save(report: Report, path: Path) -> Path:
    """As its name says: .html is everything, .png the first plot."""
    kind = path.suffix.lower()
    if kind not in (".html", ".png"):
        raise OptionError(f"a report is written to a file that ends with .html or .png, not {path.name!r}")
    if kind == ".png" and not report.plots:
        raise OptionError(f"{report.title}: there is nothing to plot")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(report.plots[0].png if kind == ".png" else report.to_html().encode())
    return path


def cell(value: Any) -> str:
    """One value, in one line."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:,.1f}"
        case datetime():
            return value.isoformat(sep=" ", timespec="milliseconds")
        case bytes() | bytearray():
            return cell(bytes(value).decode("utf-8", "replace"))
    text = " ".join(str(value).split())
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


def _plot_html(plot: Plot) -> str:
    data = base64.b64encode(plot.png).decode()
    return f'<h2>{html.escape(plot.title)}</h2><img alt="{html.escape(plot.title)}" src="data:image/png;base64,{data}">'


def _table_html(table: Table) -> str:
    title = f"<h2>{html.escape(table.title)}</h2>"
    if not table.rows:
        return f'{title}<p class="none">nothing</p>'
    head = "".join(f"<th>{html.escape(name)}</th>" for name in table.columns)
    body = "".join(f"<tr>{''.join(_cell_html(value) for value in row)}</tr>" for row in table.rows)
    return f"{title}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell_html(value: Any) -> str:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return f"<td{' class=n' if number else ''}>{html.escape(cell(value))}</td>"
