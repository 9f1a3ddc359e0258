"""SQL92 conditions as programs for the kernel, compiled once and kept."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from rocketq.filter.errors import BadExpressionError
from rocketq.kernel.filter_program import FilterProgram

KEPT_MAX: Final = 256


def compile_sql(expression: str) -> FilterProgram:
    """The program of an expression; BadExpressionError says what is wrong and where. Asking again costs nothing."""
    found = _compile(expression)
    if isinstance(found, BadExpressionError):
        raise BadExpressionError(found.what, found.expression, found.position)
    return found


def load_parser() -> None:
    """Before the first expression comes, where one that comes should not wait."""
    compile_sql("TRUE")


@lru_cache(maxsize=KEPT_MAX)
def _compile(expression: str) -> FilterProgram | BadExpressionError:
    """Errors are kept as well: a client that sends a bad expression sends it again and again."""
    from rocketq.filter.parser import parse  # noqa: PLC0415 - its tables take 70 ms to make, and few need them
    from rocketq.filter.program_writer import to_program  # noqa: PLC0415

    try:
        return to_program(parse(expression), expression)
    except BadExpressionError as error:
        return error.with_traceback(None)
