"""What is wrong with an expression, and where."""

from __future__ import annotations

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
