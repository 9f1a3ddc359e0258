"""Written by tools/kernel_stubs.py from filter_program.pxd and filter_program.py."""

from collections.abc import Sequence
from typing import Any, Final

FALSE: Final = 0
TRUE: Final = 1
UNKNOWN: Final = 2
FAILED: Final = 3
NOTHING: Final = 0
TRUTH: Final = 1
INT: Final = 2
LONG: Final = 3
DOUBLE: Final = 4
TEXT: Final = 5
LOAD: Final = 0
CONSTANT: Final = 1
NEGATE: Final = 2
NOT: Final = 3
CAST: Final = 4
EQUAL: Final = 5
COMPARE: Final = 6
IN: Final = 7
SEARCH: Final = 8
AND: Final = 9
OR: Final = 10
SKIP_FALSE: Final = 11
SKIP_TRUE: Final = 12
SKIP_NULL: Final = 13
LESS: Final = 1
SAME: Final = 2
GREATER: Final = 4
ANYWHERE: Final = 0
AT_START: Final = 1
AT_END: Final = 2
ABSENT: Final = 4
I64_MIN: Final[int]
I64_MAX: Final[int]
I64_MIN_TENTH: Final[int]
DEPTH_MAX: Final[int]
NAMES_MAX: Final[int]

class FilterProgram:
    @property
    def names(self) -> tuple[bytes, ...]: ...
    @property
    def depth(self) -> int: ...
    def __init__(
        self, names: Sequence[bytes], code: Sequence[Sequence[int]], constants: Sequence[tuple[int, Any]]
    ) -> None: ...
    def verdict(self, properties: bytes) -> int: ...
    def matches(self, properties: bytes) -> bool: ...
