"""What users test with too: a cluster in the test process, pytest fixtures, a disk that tears writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketq.testing.embedded import EmbeddedCluster

__all__ = ["EmbeddedCluster"]


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: pytest loads the plugin beside it in every run, broker or not."""
    if name == "EmbeddedCluster":
        from rocketq.testing.embedded import EmbeddedCluster  # noqa: PLC0415

        return EmbeddedCluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
