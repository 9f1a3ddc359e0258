"""Packages whose public names are imported when they are first used, each with its own module only."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

_IMPORT: Final = re.compile(r"^from (\S+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def names_on_demand(package: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, from its globals: the names are those of its module `public`.

    A name is imported from the module that `public` imports it from. A module beside `public` is not such a name, so
    that `from package import module` loads no more than the module.
    """
    home: str = package["__name__"]
    homes: dict[str, str] = {}

    def home_of(name: str) -> str | None:
        if not homes:
            spec = find_spec(f"{home}.public")
            try:
                homes.update(_imports(Path(spec.origin or "").read_text() if spec is not None else ""))
            except OSError:  # installed without sources
                homes.update(dict.fromkeys(import_module(f"{home}.public").__all__, f"{home}.public"))
        return homes.get(name)

    def find(name: str) -> Any:
        if name == "__all__":
            return import_module(f"{home}.public").__all__
        if not name.startswith("_") and (module := home_of(name)) is not None:
            found = package[name] = getattr(import_module(module), name)
            return found
        raise AttributeError(f"module {home!r} has no attribute {name!r}")

    def names() -> list[str]:
        return [*package, *find("__all__")]

    return find, names


def _imports(source: str) -> dict[str, str]:
    """The module that each name is imported from, of a module made of `from module import names`."""
    return {
        name.strip(): module
        for module, several, one in _IMPORT.findall(source)
        for name in (several or one).split(",")
        if name.strip()
    }
