"""The client: asyncio first, with a synchronous facade of the same shape. `import rocketq` has the same names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketq.runtime.on_demand import names_on_demand

if TYPE_CHECKING:
    from rocketq.client.public import *  # noqa: F403
else:  # Spark's workers need only the blocking part
    __getattr__, __dir__ = names_on_demand(globals())
