"""Errors between Spark and brokers, each in one line.

Spark shows a Python exception at the end of its own longer text. So exceptions that leave this package carry no cause
and only the last frame: the user reads our line there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

from rocketq.errors import RocketQError

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


class SparkError(RocketQError):
    """Of the source, the sink or a pipeline."""

    def __init__(self, text: str) -> None:
        super().__init__(" ".join(text.splitlines()))


class OptionError(SparkError):
    """An option is missing, unknown, contradicts another one or has a value it cannot have."""


class DataLossError(SparkError):
    """Messages of the requested range no longer exist."""


class AwayError(SparkError):
    """A broker or a NameServer does not answer, or not yet; another try may help."""

    retriable = True


def told_of(what: str, error: RocketQError) -> SparkError:
    """The error with what was being done in front."""
    return (AwayError if error.retriable else SparkError)(f"{what}: {error}")


def plain(error: RocketQError) -> SparkError:
    """As it is raised to Spark."""
    own = error if isinstance(error, SparkError) else (AwayError if error.retriable else SparkError)(str(error))
    return own.with_traceback(None)


def plainly(call: Callable[_Params, _Result]) -> Callable[_Params, _Result]:
    """For what Spark calls."""

    @functools.wraps(call)
    def called(*args: _Params.args, **given: _Params.kwargs) -> _Result:
        try:
            return call(*args, **given)
        except RocketQError as error:
            raise plain(error) from None

    return called


def plain_rows(rows: Iterator[_Result]) -> Iterator[_Result]:
    """For what Spark iterates over."""
    try:
        yield from rows
    except RocketQError as error:
        raise plain(error) from None
