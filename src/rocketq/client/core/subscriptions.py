"""Which tags are asked for. Brokers compare hashes of tags, so whoever asked compares the tags themselves."""

from __future__ import annotations

from typing import Final

ALL: Final = "*"


def tags_of(expression: str | None) -> frozenset[str] | None:
    """The tags in `a || b`; None for all."""
    if not expression or expression.strip() == ALL:
        return None
    return frozenset(tag.strip() for tag in expression.split("||") if tag.strip()) or None


def is_wanted(tag: str | None, tags: frozenset[str] | None) -> bool:
    return tags is None or tag in tags
