"""Tag expressions: `a || b`, or `*` for all."""

from __future__ import annotations

from typing import Final

from rocketq.filter.errors import BadExpressionError
from rocketq.kernel.properties import hash_text

ALL: Final = "*"
_OR: Final = "||"


def parse_tags(expression: str | None) -> tuple[str, ...] | None:
    """The tags of `a || b`; None for all messages. Blanks alone match nothing."""
    if not expression or expression == ALL:
        return None
    parts = expression.split(_OR)
    tags = tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))
    if not tags and len(parts) > 1:
        raise BadExpressionError(f"{expression!r} has no tag in it", expression)
    return tags


def tag_code(tag: str) -> int:
    """The hash by which queue entries know a tag; different tags may share one."""
    return hash_text(tag)
