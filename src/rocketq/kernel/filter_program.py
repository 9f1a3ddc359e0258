"""A condition on a message's properties as a small program, run over their bytes without making objects of them.

program := *( op:i32 a:i32 b:i32 )     a stack machine; the last cell is the verdict
cell    := NOTHING | TRUTH | INT | LONG | DOUBLE | TEXT       the types of a Java evaluation; NOTHING is SQL's NULL
verdict := TRUE | FALSE | UNKNOWN | FAILED                    FAILED: a text had to be a number and is none

| op                              | does                                                                               |
|---------------------------------|------------------------------------------------------------------------------------|
| LOAD a, CONSTANT a              | push a property (NOTHING when it is absent or empty), a constant                   |
| NEGATE, NOT, CAST               | change the top; CAST makes a condition of a property: text is FALSE                |
| EQUAL, COMPARE a, AND, OR       | make one of the top two; a: which outcomes are TRUE (LESS, SAME, GREATER)          |
| IN a b                          | whether the top is one of the texts among constants a..b-1                         |
| SEARCH a b                      | whether the top has constant a ANYWHERE, AT_START or AT_END; with ABSENT: has not  |
| SKIP_FALSE, _TRUE, _NULL a      | go to instruction a when the top is that, and leave it there                       |
"""

from __future__ import annotations

from array import array

import cython

from rocketq.kernel.java_numbers import java_double, java_integer

if not cython.compiled:
    from math import copysign
    from types import SimpleNamespace as Cell

    from rocketq.kernel.primitives import equal_bytes, find_byte

I64_MIN = -9223372036854775808
I64_MAX = 9223372036854775807
I64_MIN_TENTH = -922337203685477580
DEPTH_MAX = NAMES_MAX = 64  # room in the arrays of run()
GROWTH = {LOAD: 1, CONSTANT: 1, EQUAL: -1, COMPARE: -1, AND: -1, OR: -1}


@cython.cclass
class FilterProgram:
    """`names`: the properties it reads. `code`: (op, a, b) each. `constants`: (kind, value) each.

    Running one needs nothing but the stack, so threads may share it.
    """

    def __init__(self, names, code, constants):
        texts = [value if kind == TEXT else b"" for kind, value in constants]
        self.names = tuple(names)
        self._pool = b"".join([*self.names, *texts])
        self._texts = self._pool
        self._name_at = array("q", _edges(self.names, 0))
        self._text_at = array("q", _edges(texts, self._name_at[len(self.names)]))
        self._kinds = array("i", [kind for kind, _ in constants] or [NOTHING])
        self._integers = array("q", [value if kind in (TRUTH, INT, LONG) else 0 for kind, value in constants] or [0])
        self._numbers = array("d", [value if kind == DOUBLE else 0.0 for kind, value in constants] or [0.0])
        self._code = array("i", [number for instruction in code for number in instruction])
        self._names = len(self.names)
        self._length = len(code)
        self.depth = _depth_of(code, len(self.names), len(constants))

    def verdict(self, properties: bytes):
        """TRUE, FALSE, UNKNOWN or FAILED for these properties."""
        return int(self.run(properties, 0, len(properties)))

    def matches(self, properties: bytes):
        """Whether the verdict is TRUE: nothing else lets a message through."""
        return self.run(properties, 0, len(properties)) == TRUE

    def run(self, p, at, end):
        cells: Cell[64]
        spans: cython.Py_ssize_t[128]
        here: cython.int = 0
        top: cython.int = -1
        op: cython.int
        a: cython.int
        if not cython.compiled:
            cells = [Cell() for _ in range(self.depth)]
            spans = [-1] * (2 * self._names)
        self.find(p, at, end, spans)
        while here < self._length:
            op = self._code[3 * here]
            a = self._code[3 * here + 1]
            if op == LOAD:
                top += 1
                cells[top].kind = TEXT if spans[2 * a] >= 0 else NOTHING
                cells[top].text = p
                cells[top].at = spans[2 * a]
                cells[top].end = spans[2 * a + 1]
            elif op == SKIP_FALSE or op == SKIP_TRUE:
                if cells[top].kind == TRUTH and cells[top].integer == op - SKIP_FALSE:
                    here = a
                    continue
            elif op == SKIP_NULL:
                if cells[top].kind == NOTHING:
                    here = a
                    continue
            else:
                top = self.step(cells, top, op, a, self._code[3 * here + 2])
                if top < 0:
                    return FAILED
            here += 1
        return UNKNOWN if cells[0].kind == NOTHING else cells[0].integer

    def find(self, p, at, end, spans):
        """Where the values of the wanted properties lie: the last of a name; one without name or value is none."""
        item_end: cython.Py_ssize_t
        name_end: cython.Py_ssize_t
        slot: cython.int
        size: cython.Py_ssize_t
        for slot in range(self._names):
            spans[2 * slot] = -1
        while at < end:
            item_end = find_byte(p, at, end, 2)
            name_end = find_byte(p, at, item_end, 1)
            size = name_end - at
            if size > 0 and name_end + 1 < item_end:
                for slot in range(self._names):
                    if self._name_at[slot + 1] - self._name_at[slot] == size and equal_bytes(
                        p, at, self._texts, self._name_at[slot], size
                    ):
                        spans[2 * slot] = name_end + 1
                        spans[2 * slot + 1] = item_end
                        break
            at = item_end + 1

    def step(self, cells, top, op, a, b):
        """Do one instruction; where the top is then, or -1 when it failed."""
        kind: cython.int
        if op == CONSTANT:
            self.push(cells, top + 1, a)
            return top + 1
        kind = cells[top].kind
        if op == EQUAL:
            return equal(cells, top - 1)
        if op == COMPARE:
            return compare(cells, top - 1, a)
        if op == NEGATE:
            cells[top].integer = -cells[top].integer if kind == INT or kind == LONG else 0
            cells[top].number = -cells[top].number if kind == DOUBLE else 0.0
            cells[top].kind = kind if kind == INT or kind == LONG or kind == DOUBLE else NOTHING
        elif op == NOT:
            cells[top].integer = 1 - cells[top].integer if kind == TRUTH else 0
        elif op == CAST:
            cells[top].integer = 0
            cells[top].kind = TRUTH if kind == TEXT else NOTHING
        elif op == IN:
            cells[top].integer = self.is_listed(cells, top, a, b)
            cells[top].kind = TRUTH if kind == TEXT else NOTHING
        elif op == SEARCH:
            cells[top].integer = kind == TEXT and self.is_found(cells, top, a, b)
            cells[top].kind = TRUTH
        else:
            join(cells, top - 1, op - AND)
            return top - 1
        return top

    def push(self, cells, top, a):
        cells[top].kind = self._kinds[a]
        cells[top].integer = self._integers[a]
        cells[top].number = self._numbers[a]
        cells[top].text = self._texts
        cells[top].at = self._text_at[a]
        cells[top].end = self._text_at[a + 1]

    def is_listed(self, cells, top, first, stop):
        index: cython.int
        size: cython.Py_ssize_t = cells[top].end - cells[top].at
        if cells[top].kind != TEXT:
            return False
        for index in range(first, stop):
            if self._text_at[index + 1] - self._text_at[index] == size and equal_bytes(
                cells[top].text, cells[top].at, self._texts, self._text_at[index], size
            ):
                return True
        return False

    def is_found(self, cells, top, a, how):
        """A search for nothing finds nothing, and does not find it absent either."""
        wanted: cython.Py_ssize_t = self._text_at[a]
        size: cython.Py_ssize_t = self._text_at[a + 1] - wanted
        at: cython.Py_ssize_t = cells[top].at
        last: cython.Py_ssize_t = cells[top].end - size
        found: cython.bint = False
        if size == 0:
            return False
        if last >= at:
            if how & AT_START:
                last = at
            elif how & AT_END:
                at = last
            while at <= last and not found:
                at = find_byte(cells[top].text, at, last + 1, self._texts[wanted])
                found = at <= last and equal_bytes(cells[top].text, at, self._texts, wanted, size)
                at += 1
        return found != (how & ABSENT != 0)


def _edges(texts, start):
    """The start of each of the texts when they are stored back to back from `start`, and where the last ends."""
    places = [start]
    for text in texts:
        start += len(text)
        places.append(start)
    return places


def _depth_of(code, names, constants):
    """How many cells a program needs; ValueError when it needs too many or refers to an unknown constant."""
    deepest = depth = 0
    for number, (op, a, b) in enumerate(code):
        depth += GROWTH.get(op, 0)
        deepest = max(deepest, depth)
        sound = {
            LOAD: 0 <= a < names,
            CONSTANT: 0 <= a < constants,
            SEARCH: 0 <= a < constants,
            IN: 0 <= a <= b <= constants,
            SKIP_FALSE: number < a <= len(code),
            SKIP_TRUE: number < a <= len(code),
            SKIP_NULL: number < a <= len(code),
        }
        if depth < 1 or not LOAD <= op <= SKIP_NULL or not sound.get(op, True):
            raise ValueError(f"instruction {number} ({op} {a} {b}) cannot be")
    if depth != 1 or deepest > DEPTH_MAX or names > NAMES_MAX:
        raise ValueError(f"needs {deepest} cells and {names} names, and leaves {depth}")
    return deepest


# Two cells


def join(cells, left, deciding):
    """AND (`deciding` 0) or OR (1) of the two cells from `left` on, into the first: the deciding truth, then NULL."""
    right: cython.int = left + 1
    if (cells[left].kind == TRUTH and cells[left].integer == deciding) or (
        cells[right].kind == TRUTH and cells[right].integer == deciding
    ):
        cells[left].kind = TRUTH
        cells[left].integer = deciding
    elif cells[right].kind == NOTHING:
        cells[left].kind = NOTHING


def equal(cells, left):
    """SQL's = of the two cells from `left` on, into the first; -1 when it failed.

    As in Java the sides are not alike: NULL = x is NULL, x = NULL is FALSE, and both NULL are TRUE.
    """
    right: cython.int = left + 1
    answer: cython.int
    size: cython.Py_ssize_t = cells[left].end - cells[left].at
    if cells[left].kind == NOTHING:
        cells[left].kind = TRUTH if cells[right].kind == NOTHING else NOTHING
        cells[left].integer = 1
        return left
    if cells[right].kind == NOTHING:
        answer = FALSE
    elif cells[left].kind == TEXT and cells[right].kind == TEXT:
        answer = size == cells[right].end - cells[right].at and equal_bytes(
            cells[left].text, cells[left].at, cells[right].text, cells[right].at, size
        )
    elif cells[left].kind == TEXT and cells[right].kind == TRUTH:
        answer = is_word_true(cells[left].text, cells[left].at, cells[left].end) == cells[right].integer
    else:
        answer = order(cells, left)
        if answer == FAILED:
            return -1
        answer = answer == 0
    cells[left].kind = TRUTH
    cells[left].integer = answer
    return left


def compare(cells, left, wanted):
    """One of < <= > >= on the two cells from `left` on, into the first; -1 when it failed. Texts compare as doubles."""
    right: cython.int = left + 1
    answer: cython.int
    if cells[left].kind == NOTHING or cells[right].kind == NOTHING:
        cells[left].kind = NOTHING
        return left
    if cells[left].kind == TEXT and cells[right].kind == TEXT and not to_double(cells, left):
        return -1
    answer = order(cells, left)
    if answer == FAILED:
        return -1
    cells[left].kind = TRUTH
    cells[left].integer = (wanted & (LESS if answer < 0 else SAME if answer == 0 else GREATER)) != 0
    return left


def order(cells, left):
    """-1, 0 or 1 after a text was made a number like the other side; MISFIT for a truth and a number; FAILED."""
    right: cython.int = left + 1
    a: cython.double
    b: cython.double
    if cells[left].kind == TRUTH and cells[right].kind == TEXT:
        return FAILED
    if cells[left].kind == TEXT:
        if not convert(cells, left, cells[right].kind):
            return FAILED
    elif cells[right].kind == TEXT and not convert(cells, right, cells[left].kind):
        return FAILED
    if (cells[left].kind == TRUTH) != (cells[right].kind == TRUTH):
        return MISFIT
    if cells[left].kind == DOUBLE or cells[right].kind == DOUBLE:
        a = cells[left].number if cells[left].kind == DOUBLE else cells[left].integer
        b = cells[right].number if cells[right].kind == DOUBLE else cells[right].integer
        return order_doubles(a, b)
    if cells[left].integer == cells[right].integer:
        return 0
    return -1 if cells[left].integer < cells[right].integer else 1


def order_doubles(a, b):
    """Java's total order: -0.0 is below 0.0, NaN equals itself and is above all others."""
    if a < b:
        return -1
    if a > b:
        return 1
    if a == b:
        if a != 0.0 or copysign(1.0, a) == copysign(1.0, b):
            return 0
        return -1 if copysign(1.0, a) < 0.0 else 1
    if a != a:
        return 0 if b != b else 1
    return -1


# A text as a number, as Java reads it


def convert(cells, index, kind):
    if kind == DOUBLE:
        return to_double(cells, index)
    return to_integer(cells, index, kind == LONG)


def to_integer(cells, index, wide):
    """Make an INT or LONG of a text cell; False when it is none or does not fit. Counts down: that side is wider."""
    p: cython.p_const_uchar = cells[index].text
    at: cython.Py_ssize_t = cells[index].at
    end: cython.Py_ssize_t = cells[index].end
    value: cython.longlong = 0
    lowest: cython.longlong
    digit: cython.int
    negative: cython.bint = at < end and p[at] == 45
    if at < end and (p[at] == 45 or p[at] == 43):
        at += 1
    if at == end:
        return False
    lowest = I64_MIN if negative else -I64_MAX
    while at < end:
        digit = p[at] - 48
        if p[at] >= 128:
            return slow_integer(cells, index, wide)
        if digit < 0 or digit > 9 or value < I64_MIN_TENTH:
            return False
        value *= 10
        if value < lowest + digit:
            return False
        value -= digit
        at += 1
    if not negative:
        value = -value
    if not wide and (value < -2147483647 - 1 or value > 2147483647):
        return False
    cells[index].integer = value
    cells[index].kind = LONG if wide else INT
    return True


def to_double(cells, index):
    """Make a DOUBLE of a text cell; False when it is none. Up to 15 digits are exact as they are."""
    p: cython.p_const_uchar = cells[index].text
    at: cython.Py_ssize_t = cells[index].at
    end: cython.Py_ssize_t = cells[index].end
    value: cython.longlong = 0
    digits: cython.int = 0
    decimals: cython.int = 0
    scale: cython.double = 1.0
    pointed: cython.bint = False
    negative: cython.bint = at < end and p[at] == 45
    if at < end and (p[at] == 45 or p[at] == 43):
        at += 1
    while at < end:
        if p[at] == 46 and not pointed:
            pointed = True
        elif 48 <= p[at] <= 57:
            value = value * 10 + (p[at] - 48)
            digits += 1
            decimals += pointed
        else:
            digits = 99
        if digits > 15:
            return slow_double(cells, index)
        at += 1
    if digits == 0:
        return slow_double(cells, index)
    while decimals > 0:
        scale *= 10.0
        decimals -= 1
    cells[index].number = (-1.0 if negative else 1.0) * value / scale
    cells[index].kind = DOUBLE
    return True


def is_word_true(p, at, end):
    """Java's Boolean.valueOf: `true` in any case."""
    return (
        end - at == 4
        and p[at] | 32 == 116
        and p[at + 1] | 32 == 114
        and p[at + 2] | 32 == 117
        and p[at + 3] | 32 == 101
    )


def slow_integer(cells, index, wide):
    """Java takes the digits of any script."""
    text = cells[index].text[cells[index].at : cells[index].end]
    value = java_integer(bytes(text), wide)
    if value is None:
        return False
    cells[index].integer = value
    cells[index].kind = LONG if wide else INT
    return True


def slow_double(cells, index):
    text = cells[index].text[cells[index].at : cells[index].end]
    value = java_double(bytes(text))
    if value is None:
        return False
    cells[index].number = value
    cells[index].kind = DOUBLE
    return True
