"""Rows of DataFrames for people and for programs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from rocketq.cli.commands.tables import NONE, table, time_text

CELL_CHARS_MAX: Final = 60
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def to_ms(value: datetime) -> int:
    """Spark gives local times without a zone."""
    return round((value if value.tzinfo is not None else value.astimezone(UTC)).timestamp() * 1000)


def row_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Names as in all our JSON; moments in milliseconds since 1970 (`sentAt` is `sent_ms`)."""
    return {_name(name): _value(value) for name, value in row.items()}


def _name(column: str) -> str:
    plain = _HUMP.sub("_", column).lower()
    return "at_ms" if plain == "at" else re.sub(r"_at$", "_ms", plain)


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_ms(value)
    return bytes(value).decode("utf-8", "replace") if isinstance(value, (bytes, bytearray)) else value


def rows_text(titles: Mapping[str, str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A table of the named columns, with titles."""
    return table(list(titles.values()), [[_cell(row[name]) for name in titles] for row in rows])


def _cell(value: Any) -> Any:
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return time_text(to_ms(value))
    if isinstance(value, float):
        return round(value, 1)
    if isinstance(value, int):
        return value
    text = " ".join(str(value).split())
    return text if len(text) <= CELL_CHARS_MAX else text[: CELL_CHARS_MAX - 1] + "…"


def as_dicts(rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Of collected rows."""
    return [row.asDict() for row in rows]
