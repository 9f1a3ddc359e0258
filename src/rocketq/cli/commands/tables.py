"""Text for people: tables, times, sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

UNKNOWN: Final = "?"
NONE: Final = "-"


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Columns as wide as they need to be; numbers to the right. None is unknown."""
    body = [tuple(UNKNOWN if cell is None else cell for cell in row) for row in rows]
    texts = [tuple(titles), *(tuple(str(cell) for cell in row) for row in body)]
    widths = [max(len(line[at]) for line in texts) for at in range(len(titles))]
    numeric = [bool(body) and all(_is_number(row[at]) for row in body) for at in range(len(titles))]
    return "\n".join(_line(line, widths, numeric) for line in texts)


def pairs(values: dict[str, Any]) -> str:
    """One `name  value` line each."""
    width = max((len(name) for name in values), default=0)
    return "\n".join(
        f"{name:<{width}}  {UNKNOWN if value is None else value}".rstrip() for name, value in values.items()
    )


def time_text(time_ms: int | None) -> str:
    """Local time to the millisecond."""
    if time_ms is None or time_ms <= 0:
        return NONE
    return datetime.fromtimestamp(time_ms / 1000).isoformat(sep=" ", timespec="milliseconds")


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    columns = zip(cells, widths, numeric, strict=True)
    return "  ".join(cell.rjust(width) if right else cell.ljust(width) for cell, width, right in columns).rstrip()


def _is_number(cell: Any) -> bool:
    return isinstance(cell, (int, float)) or cell in (UNKNOWN, NONE)
