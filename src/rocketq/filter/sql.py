"""Compiles SQL92 conditions to programs for the kernel, with a cache."""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from rocketq.kernel.filter_program import FilterProgram

_SHOWN_CHARS = 40


class BadExpressionError(ValueError):
    """An expression that cannot be used. `position`: index of the character where it goes wrong, where there is one."""

    def __init__(self, what: str, expression: str, position: int | None = None) -> None:
        self.what = what
        self.expression = expression
        self.position = position
        super().__init__(what if position is None else f"{what} at character {position + 1}: {self._near()}")

    def _near(self) -> str:
        """The text around the position, which is marked."""
        assert self.position is not None
        low = max(0, self.position - _SHOWN_CHARS // 2)
        before, behind = self.expression[low : self.position], self.expression[self.position : low + _SHOWN_CHARS]
        return f"{'...' * (low > 0)}{before} >>> {behind}{'...' * (low + _SHOWN_CHARS < len(self.expression))}"


KEPT_MAX: Final = 256
_compiled: dict[str, FilterProgram | BadExpressionError] = {}
"""The latest expressions. Errors are kept too: a client repeats its invalid expression."""


def compile_sql(expression: str) -> FilterProgram:
    """Compile an expression, with a cache; BadExpressionError has the fault and its position."""
    found = _compiled.get(expression)
    if found is None:
        steps = compile_steps(expression)
        try:
            while True:
                next(steps)
        except StopIteration as stop:
            found = stop.value
    if isinstance(found, BadExpressionError):
        raise BadExpressionError(found.what, found.expression, found.position)
    assert found is not None
    return found


def is_compiled(expression: str) -> bool:
    """Whether `compile_sql` needs no parsing."""
    return expression in _compiled


def compile_steps(expression: str) -> Generator[None, None, FilterProgram | BadExpressionError]:
    """Compile an expression into the cache, one token per step: parsing a long one takes 40 ms."""
    from rocketq.filter.parser import parse_steps  # noqa: PLC0415 - building its tables takes 70 ms
    from rocketq.filter.program_writer import to_program  # noqa: PLC0415

    found: FilterProgram | BadExpressionError
    try:
        found = to_program((yield from parse_steps(expression)), expression)
    except BadExpressionError as error:
        found = error.with_traceback(None)
    while len(_compiled) >= KEPT_MAX:
        _compiled.pop(next(iter(_compiled), ""), None)
    _compiled[expression] = found
    return found


def load_parser() -> None:
    """Import the parser now, so that the first expression does not wait for it."""
    compile_sql("TRUE")
