"""Chooses between the compiled and the interpreted form of the kernel's modules, all of them or none."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

from rocketq.kernel.cython_shim import enum_values, make_shim

CHOICE_VARIABLE = "ROCKETQ_KERNEL"

_HERE = Path(__file__).parent

MODULES = sorted(path.stem for path in _HERE.glob("*.pxd") if path.stem != "primitives")
"""Every file with its C types in a .pxd beside it; setup.py compiles the same."""


def load_kernel() -> bool:
    """Choose the form of all kernel modules; True when it is the compiled one.

    Compiled modules are imported by those who use them. Interpreted ones are imported here, where their finder is.
    """
    compiled = _choose(os.environ.get(CHOICE_VARIABLE, ""))
    if not compiled:
        with _interpreted():
            _import_all()
    return compiled


def _choose(wanted: str) -> bool:
    missing = [
        name for name in MODULES if not any((_HERE / f"{name}{suffix}").exists() for suffix in EXTENSION_SUFFIXES)
    ]
    if wanted not in ("", "compiled", "interpreted"):
        raise ImportError(f"{CHOICE_VARIABLE}={wanted}: say compiled or interpreted")
    if wanted == "compiled" and missing:
        raise ImportError(
            f"{CHOICE_VARIABLE}=compiled, but these kernel modules were not compiled: {', '.join(missing)}; "
            "install again where a C compiler is found"
        )
    return wanted != "interpreted" and not missing


def _import_all() -> None:
    for name in MODULES:
        importlib.import_module(f"rocketq.kernel.{name}")


class _SourceLoader(SourceFileLoader):
    """Runs a kernel file with the constants of its .pxd, which in the compiled form are C's."""

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(enum_values(Path(self.path).with_suffix(".pxd").read_text()))
        super().exec_module(module)


class _SourceFinder(MetaPathFinder):
    """Finds the kernel's .py files although compiled ones lie beside them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != "rocketq.kernel" or name not in MODULES:
            return None
        location = str(_HERE / f"{name}.py")
        return spec_from_file_location(fullname, location, loader=_SourceLoader(fullname, location))


@contextmanager
def _interpreted() -> Iterator[None]:
    finder, absent = _SourceFinder(), object()
    before = sys.modules.get("cython", absent)
    sys.modules["cython"] = make_shim()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        if before is absent:
            del sys.modules["cython"]
        else:
            sys.modules["cython"] = before  # type: ignore[assignment]
