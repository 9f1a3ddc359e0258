"""A picture of the broker's figures: ratios of ours to the best of Apache's, row by row, and the bars."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.bars import Bar

HELD, MISSED = "#2a7f62", "#b5443c"


def plot_bars(bars: list[Bar], path: Path) -> Path | None:
    """Saved beside the figures; None without matplotlib, or with nothing to show."""
    try:
        import matplotlib  # noqa: PLC0415 - only here, and not everywhere installed
    except ImportError:
        return None
    if not bars:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot  # noqa: PLC0415

    sides = [("more is better", [bar for bar in bars if not bar.at_most]),
             ("less is better", [bar for bar in bars if bar.at_most])]  # fmt: skip
    rows = [max(1, len(side)) for _, side in sides]
    figure, axes = pyplot.subplots(2, 1, figsize=(10, 1.6 + 0.42 * sum(rows)), height_ratios=rows)
    for each, (title, side) in zip(axes, sides, strict=True):
        _plot_side(each, title, side)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    return path


def _plot_side(axes: Any, title: str, bars: list[Bar]) -> None:
    places = range(len(bars))
    axes.barh(places, [bar.measured for bar in bars], color=[HELD if bar.held else MISSED for bar in bars], height=0.6)
    for place, bar in zip(places, bars, strict=True):
        axes.plot([bar.wanted, bar.wanted], [place - 0.42, place + 0.42], color="black", linewidth=2)
        axes.annotate(f"{bar.measured:.2f}", (bar.measured, place), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
    axes.set_yticks(list(places), [bar.name for bar in bars], fontsize=8)
    axes.invert_yaxis()
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.set_title(f"ratio to the peer, {title}; the mark is the bar", fontsize=9)
