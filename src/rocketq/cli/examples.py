"""Examples in help texts; here, so that servers need none of what talks to a cluster."""

from __future__ import annotations


def example(*lines: str) -> str:
    """The end of a help text, kept as it is."""
    return "\b\nExample:\n" + "\n".join(f"  {line}" for line in lines)
