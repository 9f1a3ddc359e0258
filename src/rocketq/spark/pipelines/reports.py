"""What pipelines found, for people: tables and plots as one HTML page, a PNG, or text. Pure but for `save`."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from rocketq.spark.errors import OptionError

CELL_CHARS_MAX: Final = 160
_PAGE_STYLE: Final = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:72em;padding:0 1em;color:#1c2430}"
)
_STYLES: Final = {
    "table": "border-collapse:collapse;margin:.5em 0 2em;font-variant-numeric:tabular-nums",
    "th,td": "padding:.25em .8em;border-bottom:1px solid #d5dbe3;text-align:left;vertical-align:top",
    "th": "border-bottom:2px solid #8793a3",
    "td.n": "text-align:right",
    "img": "max-width:100%",
    ".none": "color:#697586",
}
_IN_NOTEBOOK: Final = "rocketq-report"


@dataclass(frozen=True, slots=True)
class Table:
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    png: bytes = field(repr=False)

    def _repr_png_(self) -> bytes:
        """As notebooks show it."""
        return self.png


@dataclass(frozen=True, slots=True)
class Report:
    title: str
    subtitle: str
    tables: Sequence[Table]
    plots: Sequence[Plot] = ()

    def to_html(self) -> str:
        """One file that needs nothing else."""
        style = _PAGE_STYLE + _style()
        head = f'<meta charset="utf-8"><title>{html.escape(self.title)}</title><style>{style}</style>'
        return f'<!doctype html><html lang="en"><head>{head}</head><body>{self._contents()}</body></html>\n'

    def _repr_html_(self) -> str:
        """As notebooks show it, which have a style of their own."""
        style = _style(within=f".{_IN_NOTEBOOK} ")
        return f'<div class="{_IN_NOTEBOOK}"><style>{style}</style>{self._contents()}</div>'

    def _contents(self) -> str:
        parts = [
            f"<h1>{html.escape(self.title)}</h1>",
            f"<p>{html.escape(self.subtitle)}</p>",
            *(_plot_html(plot) for plot in self.plots),
            *(_table_html(table) for table in self.tables),
        ]
        return "".join(parts)


def save(report: Report, path: Path | str) -> Path:
    """Write by file extension: .html is the whole report, .png the first plot."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (".html", ".png"):
        raise OptionError(f"a report is written to a file that ends with .html or .png, not {path.name!r}")
    if kind == ".png" and not report.plots:
        raise OptionError(f"{report.title}: there is nothing to plot")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(report.plots[0].png if kind == ".png" else report.to_html().encode())
    return path


def _style(within: str = "") -> str:
    """The rules for what is within such an element."""
    return "".join(f"{_each(within, names)}{{{rule}}}" for names, rule in _STYLES.items())


def _each(within: str, names: str) -> str:
    return ",".join(within + name for name in names.split(","))


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
