"""Commands over TCP: the asyncio skin around the sans-IO protocol. See docs/internals/remoting.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketq.runtime.on_demand import names_on_demand

if TYPE_CHECKING:
    from rocketq.remoting.public import *  # noqa: F403
else:  # the blocking client needs no event loop
    __getattr__, __dir__ = names_on_demand(globals())
