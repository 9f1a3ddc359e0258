"""Commands over TCP: the asyncio skin around the sans-IO protocol. See docs/remoting.md."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketq.remoting.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """The names of `public`, loaded with the first that is asked for: some need no event loop."""
    if name == "__all__" or not (name.startswith("_") or find_spec(f"{__name__}.{name}")):  # nor a module beside it
        public = importlib.import_module("rocketq.remoting.public")
        globals().update({each: getattr(public, each) for each in ("__all__", *public.__all__)})
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """So that completion finds them too."""
    return [*globals(), *__getattr__("__all__")]
