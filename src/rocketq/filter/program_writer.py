"""A condition written as instructions for the kernel."""

from __future__ import annotations

from rocketq.filter import syntax
from rocketq.filter.sql import BadExpressionError
from rocketq.filter.syntax import Node, NumberKind
from rocketq.kernel import filter_program as program
from rocketq.kernel.filter_program import FilterProgram


def to_program(condition: Node, expression: str = "") -> FilterProgram:
    writer = _Writer()
    writer.write(condition)
    if len(writer.names) > program.NAMES_MAX:
        raise BadExpressionError(f"the condition asks for more than {program.NAMES_MAX} properties", expression)
    names = [name.encode("utf-8") for name in writer.names]
    return FilterProgram(names, [tuple(instruction) for instruction in writer.code], writer.constants)


class _Writer:
    """Writes instructions; a part leaves its value on top of the stack."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self.code: list[list[int]] = []
        self.constants: list[tuple[int, object]] = []

    def write(self, node: Node) -> None:
        match node:
            case syntax.Property(name):
                self._put(program.LOAD, self.names.setdefault(name, len(self.names)))
            case syntax.Number() | syntax.Text() | syntax.Truth():
                self._put(program.CONSTANT, self._constant(node))
            case syntax.Negate(syntax.Number(value, kind)):
                self.write(syntax.Number(-value, kind))
            case syntax.Negate(operand):
                self._write_with(operand, program.NEGATE)
            case syntax.Not(operand):
                self._write_with(operand, program.NOT)
            case syntax.Cast(operand):
                self._write_with(operand, program.CAST)
            case syntax.And(terms):
                self._write_terms(terms, program.AND, program.SKIP_FALSE)
            case syntax.Or(terms):
                self._write_terms(terms, program.OR, program.SKIP_TRUE)
            case syntax.Equal(left, right):
                self.write(left)
                self._write_with(right, program.EQUAL)
            case syntax.Compare():
                self._write_compare(node)
            case syntax.In(operand, texts):
                first = len(self.constants)
                self.constants += [(program.TEXT, text.encode("utf-8", "replace")) for text in texts]
                self._write_with(operand, program.IN, first, len(self.constants))
            case syntax.Search():
                self._write_search(node)

    def _write_with(self, operand: Node, op: int, a: int = 0, b: int = 0) -> None:
        self.write(operand)
        self._put(op, a, b)

    def _write_terms(self, terms: tuple[Node, ...], op: int, skip: int) -> None:
        """Short circuit: terms behind the deciding one are not evaluated, nor are their errors."""
        self.write(terms[0])
        skips = []
        for term in terms[1:]:
            skips.append(self._put(skip))
            self._write_with(term, op)
        for each in skips:
            each[1] = len(self.code)

    def _write_compare(self, node: syntax.Compare) -> None:
        """The right side is not evaluated if the left side is NULL."""
        self.write(node.left)
        skip = self._put(program.SKIP_NULL) if isinstance(node.right, syntax.Negate) else None
        self._write_with(node.right, program.COMPARE, int(node.wanted))
        if skip is not None:
            skip[1] = len(self.code)

    def _write_search(self, node: syntax.Search) -> None:
        how = node.place.value | (program.ABSENT if node.absent else 0)
        if not node.text:
            self.write(syntax.Truth(False))
        else:
            self._write_with(node.operand, program.SEARCH, self._constant(syntax.Text(node.text)), how)

    def _put(self, op: int, a: int = 0, b: int = 0) -> list[int]:
        self.code.append([op, a, b])
        return self.code[-1]

    def _constant(self, node: syntax.Constant) -> int:
        match node:
            case syntax.Number(value, NumberKind.DOUBLE):
                entry: tuple[int, object] = (program.DOUBLE, float(value))
            case syntax.Number(value, kind):
                entry = (kind.value, value)
            case syntax.Text(text):
                entry = (program.TEXT, text.encode("utf-8", "replace"))
            case syntax.Truth(truth):
                entry = (program.NOTHING, 0) if truth is None else (program.TRUTH, int(truth))
        self.constants.append(entry)
        return len(self.constants) - 1
