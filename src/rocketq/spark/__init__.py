"""Topics as DataFrames: a source and a sink for Spark, a reader of store files, ready-made pipelines."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rocketq.spark.errors import DataLossError, OptionError, SparkError
    from rocketq.spark.listener import GroupProgress
    from rocketq.spark.sessions import session

__all__ = ["DataLossError", "GroupProgress", "OptionError", "SparkError", "session"]

_HOMES: Final = {
    "DataLossError": "errors",
    "GroupProgress": "listener",
    "OptionError": "errors",
    "SparkError": "errors",
    "session": "sessions",
}


def __getattr__(name: str) -> Any:
    """Imported when it is asked for: workers pay for nothing that their task does not use."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
