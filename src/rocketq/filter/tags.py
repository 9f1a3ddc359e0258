"""Tag expressions: `a || b`, or `*` for all."""

from __future__ import annotations

from typing import Final

from rocketq.filter.sql import BadExpressionError
from rocketq.kernel.properties import hash_text

ALL: Final = "*"
_OR: Final = "||"
TAGS_CHARS_MAX: Final = 1 << 16
"""Of an expression: a broker reads it in one turn of its loop, at each pull that carries it."""


def parse_tags(expression: str | None) -> tuple[str, ...] | None:
    """The tags of `a || b`; None for all messages. An expression of blanks matches nothing."""
    if not expression or expression == ALL:
        return None
    if len(expression) > TAGS_CHARS_MAX:
        what = f"an expression of tags has up to {TAGS_CHARS_MAX} characters, not {len(expression)}"
        raise BadExpressionError(what, expression)
    parts = expression.split(_OR)
    tags = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not tags and len(parts) > 1:
        raise BadExpressionError(f"{expression!r} has no tag in it", expression)
    return tags


def tag_code(tag: str) -> int:
    """The hash by which queue entries know a tag; different tags may share one."""
    return hash_text(tag)
