"""Packages whose public names are loaded with the first of them that is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def names_on_demand(package: dict[str, Any]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`, from its globals: the names are those of its module `public`.

    A module beside `public` is not such a name, so that `from package import module` loads no more than the module.
    """
    home: str = package["__name__"]

    def find(name: str) -> Any:
        if name == "__all__" or not (name.startswith("_") or find_spec(f"{home}.{name}")):
            public = import_module(f"{home}.public")
            package.update({each: getattr(public, each) for each in ("__all__", *public.__all__)})
            if name in package:
                return package[name]
        raise AttributeError(f"module {home!r} has no attribute {name!r}")

    def names() -> list[str]:
        return [*package, *find("__all__")]

    return find, names
