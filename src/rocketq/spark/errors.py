"""What goes wrong between Spark and brokers, each in one line.

Spark shows what Python raised at the end of a longer text of its own. So errors that leave us carry no cause and no
frames but the last: what a user reads there is our line.
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
    """Messages that were to be read are not there any more."""


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
