"""The client, asyncio first. Its public names are those of `rocketq`; this package is an alias for them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketq.client.public import *  # noqa: F403


def __getattr__(name: str) -> Any:
    package = import_module("rocketq")
    if name not in {*package.__all__, "AclDenied", "__all__"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(package, name)


def __dir__() -> list[str]:
    return [*import_module("rocketq").__all__]
