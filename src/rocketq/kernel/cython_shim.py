"""The few names of the `cython` module that the kernel's files use when they run as plain Python."""

from __future__ import annotations

from contextlib import nullcontext
from types import ModuleType
from typing import Any


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
