"""What the kernel's files need when they run as plain Python: a `cython` module, and the constants of their .pxd."""

from __future__ import annotations

import re
from contextlib import nullcontext
from types import ModuleType
from typing import Any

_ENUM = re.compile(r"^cp?def enum:\n((?:    .*\n)+)", re.MULTILINE)
_ITEM = re.compile(r"    (\w+) = (-?\w+)(?: << (\d+))?\s*(?:#.*)?")


def _unchanged(thing: Any) -> Any:
    return thing


def make_shim() -> ModuleType:
    """A module that answers `import cython` in an interpreted kernel file; nothing is declared, nothing is cast."""
    shim = ModuleType("cython")
    shim.compiled = False  # type: ignore[attr-defined]
    shim.NULL = shim.p_void = None  # type: ignore[attr-defined]
    shim.cast = lambda kind, thing: thing  # type: ignore[attr-defined]
    shim.cclass = _unchanged  # type: ignore[attr-defined]
    shim.final = _unchanged  # type: ignore[attr-defined]
    shim.nogil = nullcontext()  # type: ignore[attr-defined]
    return shim


def enum_values(pxd: str) -> dict[str, int]:
    """The constants that the text of a .pxd declares, each on a line: a number, or one shifted by another."""
    values = {}
    for block in _ENUM.findall(pxd):
        for line in block.splitlines():
            item = _ITEM.fullmatch(line)
            if item is None:
                raise ValueError(f"an enum value must be a number, or a number << a number: {line.strip()}")
            values[item[1]] = int(item[2], 0) << int(item[3] or 0)
    return values
