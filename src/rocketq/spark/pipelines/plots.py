"""Pictures of figures, as PNG. No display and no window: matplotlib's own canvas."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

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
