"""Random conditions and properties, sound and unsound."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass

NAMES = ("a", "b", "c", "_x", "$y", "A1", "TAGS", "missing")
VALUES = (
    *("1", "5", "-5", "+7", "0", "-0", "007", "2147483647", "2147483648", "-2147483648", "9223372036854775807"),
    *("9223372036854775808", "-9223372036854775808", "1.5", "1.50", "-0.0", "0.0", ".5", "5.", "1e3", "1E-3", "1e400"),
    *(
        "NaN",
        "-NaN",
        "Infinity",
        "-Infinity",
        "+Infinity",
        "0x1.8p1",
        "0x10",
        "1f",
        "2.5d",
        "3L",
        " 5",
        "5 ",
        "\t5.5\n",
    ),
    *("true", "TRUE", "True", "false", "abc", "ab", "it's", "x", "", " ", "e", ".", "-", "+", "1.2.3", "1e", "--5"),
    *("\u0661\u0662", "\uff15", "\U0001d7d9", "\u4e2d\u6587", "caf\u00e9", "0.1", "123456789012345678", "1e5f"),
    *("1234567890.12345678901234567890", "4.9e-324", "2e-324", "0.30000000000000004", "9007199254740993", "x\x01y"),
)
NUMBERS = (
    *(
        "0",
        "1",
        "5",
        "7",
        "100",
        "2147483647",
        "2147483648",
        "9223372036854775807",
        "5l",
        "5L",
        "1.5",
        ".5",
        "5.",
        "1e3",
    ),
    *("1E-3", "12.5e+2", "007.5", "0.1", "9007199254740993", "3.0"),
)
ODD_NUMBERS = (
    "9223372036854775808",
    "0.0",
    "00",
    "0L",
    "1e999",
    "1e-999",
    "5x",
    "1.2.3",
    "0e1",
    "99999999999999999999",
)
TEXTS = ("'abc'", "'x'", "'it''s'", "''", "'1'", "'true'", "'5'", "'1.5'", "'\u4e2d'", "'b'", "'\n'")
NOISE = (
    "#",
    '"',
    "'",
    "--",
    "-- note\n",
    "/* c */",
    "/*",
    ",",
    "LIKE",
    "!",
    "==",
    "AND",
    ")",
    "(",
    "<",
    "NOT",
    ";",
    "=",
)


@dataclass(frozen=True)
class Case:
    condition: str
    properties: bytes

    def line(self) -> str:
        return f"{b64encode(self.condition.encode()).decode()} {b64encode(self.properties).decode()}"


class Conditions:
    """`newer`: with the words that 5.x added."""

    def __init__(self, rng: random.Random, *, newer: bool) -> None:
        self._rng = rng
        self._newer = newer

    def cases(self, count: int) -> Iterator[Case]:
        for _ in range(count):
            condition = self.condition(self._rng.randrange(4))
            if self._rng.random() < 0.15:
                condition = self._spoiled(condition)
            for _ in range(3):
                yield Case(condition, self.properties())

    def properties(self) -> bytes:
        items = [f"{name}\x01{self._rng.choice(VALUES)}" for name in NAMES[:-1] if self._rng.random() < 0.75]
        if self._rng.random() < 0.2:
            items += [self._rng.choice(("a\x01", "a", "\x01v", "", "b\x01again"))]
        return ("\x02".join(items) + self._rng.choice(("", "\x02"))).encode()

    def condition(self, depth: int) -> str:
        pick = self._rng.random()
        if depth > 0 and pick < 0.55:
            left, right = self.condition(depth - 1), self.condition(self._rng.randrange(depth))
            return self._rng.choice((f"{left} {self._word('and')} {right}", f"{left} {self._word('or')} {right}"))
        if depth > 0 and pick < 0.7:
            return self._rng.choice(("NOT ({})", "({})", "NOT {}", "({}) = TRUE", "({}) IS NULL", "-({}) < 5")).format(
                self.condition(depth - 1)
            )
        return self._term()

    def _term(self) -> str:
        name, value, choice = self._rng.choice(NAMES), self.value(), self._rng.choice
        texts = ", ".join(choice(TEXTS) for _ in range(choice((1, 2, 7))))
        kinds = [
            f"{name} {choice(('=', '<>', '>', '>=', '<', '<='))} {value}",
            f"{value} {choice(('=', '<>', '>', '>=', '<', '<='))} {choice((name, value))}",
            f"{name} {choice(('', self._word('not')))} {self._word('between')} {self.value()} AND {self.value()}",
            f"{name} {choice(('', 'NOT'))} {self._word('in')} ({texts})",
            f"{choice((name, value))} {self._word('is')} {choice(('', 'NOT'))} {self._word('null')}",
            choice((name, "TRUE", "false", "NULL", value, f"NOT {name}", f"{name} = {name}x")),
            f"{name} = {choice(('TRUE', 'FALSE', 'NULL'))}",
            f"{choice(('TRUE', 'FALSE', 'NULL'))} = {choice((name, value))}",
        ]
        if self._newer:
            word = choice(("CONTAINS", "STARTSWITH", "endswith"))
            kinds.append(f"{choice((name, value))} {choice(('', 'NOT'))} {word} {choice(TEXTS)}")
        return choice(kinds)

    def value(self) -> str:
        pick = self._rng.random()
        if pick < 0.45:
            sign = self._rng.choice(("", "", "-", "+", "- ", "- -", "--"))
            return sign + self._rng.choice(NUMBERS if pick < 0.43 else ODD_NUMBERS)
        if pick < 0.7:
            return self._rng.choice(TEXTS)
        return self._rng.choice(("", "", "", "-")) + self._rng.choice(NAMES)

    def _word(self, word: str) -> str:
        return self._rng.choice((word, word.upper(), word.title()))

    def _spoiled(self, condition: str) -> str:
        at = self._rng.randrange(len(condition) + 1)
        match self._rng.randrange(3):
            case 0:
                return condition[:at]
            case 1:
                return condition[:at] + self._rng.choice(NOISE) + condition[at:]
            case _:
                return f"{condition} {self._rng.choice(NOISE)} {self._rng.choice(NOISE)}"
