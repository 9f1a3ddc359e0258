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

from rocketq.kernel.cython_shim import make_shim

MODULES = (
    "buffers",
    "properties",
    "records",
    "queue_units",
    "index_units",
    "batch_properties",
    "appender",
    "filter_program",
    "residency",
    "reader",
    "scanner",
    "frame_header",
    "json_header",
    "binary_header",
    "answers",
    "send_request",
    "frame_ahead",
    "queue_places",
    "send_properties",
    "send_frames",
    "pull_request",
    "pull_frames",
    "hot_frames",
    "hot_link",
    "redeliver",
    "text_column",
    "record_columns",
    "batch_encode",
)
CHOICE_VARIABLE = "ROCKETQ_KERNEL"

_HERE = Path(__file__).parent


def load_kernel() -> bool:
    """Import every kernel module in the chosen form; True when it is the compiled one."""
    compiled = _choose(os.environ.get(CHOICE_VARIABLE, ""))
    if compiled:
        _import_all()
    else:
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


class _SourceFinder(MetaPathFinder):
    """Finds the kernel's .py files although compiled ones lie beside them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        if package != "rocketq.kernel" or name not in MODULES:
            return None
        location = str(_HERE / f"{name}.py")
        return spec_from_file_location(fullname, location, loader=SourceFileLoader(fullname, location))


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
