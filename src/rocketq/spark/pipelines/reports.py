"""What pipelines found, for people: tables and plots as one HTML page, a PNG, or text. Pure but for `save`."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from rocketq.spark.errors import OptionError
from rocketq.spark.pipelines.lag import GroupLag, LagRow, drain_s, group_lags

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


class NamedCells(Protocol):
    """A collected row: Spark's own, or a dict."""

    def __getitem__(self, name: str, /) -> Any: ...


Rows = Sequence[NamedCells]

_CAUSES: Final = {
    "group": "group",
    "originTopic": "topic",
    "cause": "cause",
    "tags": "tag",
    "retries": "retries",
    "messages": "messages",
    "firstDiedAt": "first",
    "lastDiedAt": "last",
    "lastMsgId": "last id",
}
_LETTERS: Final = {
    "group": "group",
    "originTopic": "topic",
    "msgId": "id",
    "tags": "tag",
    "keys": "keys",
    "retries": "retries",
    "diedAt": "died",
    "error": "error",
}
_LATENCY: Final = {
    "topic": "topic",
    "consumerGroup": "group",
    "messageType": "type",
    "messages": "messages",
    "p50Ms": "p50 ms",
    "p90Ms": "p90 ms",
    "p99Ms": "p99 ms",
    "maxMs": "max ms",
    "consumeP50Ms": "listener p50 ms",
    "failed": "failed",
}


def dlq_page(causes: Rows, letters: Rows = ()) -> Report:
    """Of `dlq.causes`, and of some `dlq.dead_letters`."""
    most = sorted(causes, key=lambda row: -row["messages"])
    counts = [(f"{row['group']}: {row['cause'] or row['tags'] or row['originTopic']}", row["messages"]) for row in most]
    total, groups = sum(row["messages"] for row in causes), len({row["group"] for row in causes})
    tables = [_table("By cause", _CAUSES, most), *([_table("Newest", _LETTERS, letters)] if letters else [])]
    plot = Plot("Most frequent", bars("Dead letters", counts, "messages"))
    return Report("Dead letters", f"{total} messages of {groups} groups", tables, [plot])


def latency_page(latency: Rows, not_consumed: int) -> Report:
    """Of `trace.latency`."""
    figures = [
        (
            f"{row['topic']} > {row['consumerGroup']} ({row['messageType']})",
            [float(row[name]) for name in ("p50Ms", "p90Ms", "p99Ms")],
        )
        for row in latency
    ]
    picture = grouped_bars("From send to consumption", figures, ["p50", "p90", "p99"], "milliseconds")
    subtitle = f"{not_consumed} messages that no traced consumer has begun with"
    return Report("Message traces", subtitle, [_table("Latency", _LATENCY, latency)], [Plot("Percentiles", picture)])


def lag_page(rows: Iterable[LagRow]) -> Report:
    """Of samples taken with `lag.ask`."""
    kept = list(rows)
    series: dict[str, list[GroupLag]] = {}
    for each in group_lags(kept):
        series.setdefault(each.group, []).append(each)
    points = {group: [(_moment(each.at_ms), float(each.lag)) for each in own] for group, own in series.items()}
    now = [
        (_moment(own[-1].at_ms), group, own[-1].lag, own[-1].queues, own[-1].unknown, drain_s(own[0], own[-1]))
        for group, own in series.items()
    ]
    last_ms = max((row.at_ms for row in kept), default=0)
    queues = [
        (row.group, *row.queue, row.committed, row.max_offset, row.lag, row.behind_ms)
        for row in kept
        if row.at_ms == last_ms
    ]
    tables = [
        Table("Groups at the end", ["at", "group", "lag", "queues", "unknown", "seconds to go"], now),
        Table(
            "Queues at the end",
            ["group", "topic", "broker", "queue", "committed", "max offset", "lag", "behind ms"],
            queues,
        ),
    ]
    subtitle = f"{len(series)} groups, {len({row.at_ms for row in kept})} samples"
    return Report("Consumer lag", subtitle, tables, [Plot("Lag over time", lines("Lag", points, "messages"))])


def _table(title: str, columns: Mapping[str, str], rows: Rows) -> Table:
    return Table(title, list(columns.values()), [[row[name] for name in columns] for row in rows])


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


BARS_MAX: Final = 20
LABEL_CHARS_MAX: Final = 60
_AROUND_ONE: Final = timedelta(seconds=30)
_WIDTH_INCHES: Final = 9.0
_COLOURS: Final = ("#2f6db5", "#d97b29", "#3c9a63", "#b5433c", "#7d5fa8", "#7a6a52")


def bars(title: str, counts: Sequence[tuple[str, float]], unit: str) -> bytes:
    """Lying bars, the first on top; those beyond the first few are left out."""
    shown = list(counts[:BARS_MAX])
    figure = _figure(1.2 + 0.32 * max(len(shown), 1))
    axes = figure.add_subplot()
    axes.barh([_label(name) for name, _ in shown], [count for _, count in shown], color=_COLOURS[0])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title if len(shown) == len(counts) else f"{title} (the first {len(shown)} of {len(counts)})")
    return _png(figure)


def grouped_bars(title: str, rows: Sequence[tuple[str, Sequence[float]]], names: Sequence[str], unit: str) -> bytes:
    """Several figures of each row side by side: percentiles, for example."""
    shown = rows[:BARS_MAX]
    height = 0.8 / max(len(names), 1)
    figure = _figure(1.4 + 0.28 * len(names) * max(len(shown), 1))
    axes = figure.add_subplot()
    for at, name in enumerate(names):
        places = [row + at * height for row in range(len(shown))]
        axes.barh(places, [values[at] for _, values in shown], height, label=name, color=_COLOURS[at % len(_COLOURS)])
    axes.set_yticks([row + 0.4 - height / 2 for row in range(len(shown))], [_label(name) for name, _ in shown])
    axes.invert_yaxis()
    axes.set_xlabel(unit)
    axes.set_title(title)
    axes.legend()
    return _png(figure)


def lines(title: str, series: Mapping[str, Sequence[tuple[datetime, float]]], unit: str) -> bytes:
    """Over time, a line each."""
    figure = _figure(4.2)
    axes = figure.add_subplot()
    for at, (name, points) in enumerate(sorted(series.items())):
        colour = _COLOURS[at % len(_COLOURS)]
        axes.plot([when for when, _ in points], [value for _, value in points], "o-", ms=3, color=colour, label=name)  # type: ignore[arg-type]
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    moments = {when for points in series.values() for when, _ in points}
    if len(moments) == 1:  # matplotlib would show the years around it
        (only,) = moments
        axes.set_xlim(only - _AROUND_ONE, only + _AROUND_ONE)  # type: ignore[arg-type]
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit)
    axes.set_title(title)
    if series:
        axes.legend()
    return _png(figure)


def _figure(height_inches: float) -> Figure:
    return Figure(figsize=(_WIDTH_INCHES, height_inches), layout="constrained")


def _png(figure: Figure) -> bytes:
    kept = io.BytesIO()
    figure.savefig(kept, format="png", dpi=110)
    return kept.getvalue()


def _label(name: str) -> str:
    """Dollar signs would be read as formulas."""
    text = name if len(name) <= LABEL_CHARS_MAX else name[: LABEL_CHARS_MAX - 1] + "…"
    return text.replace("$", r"\$")
