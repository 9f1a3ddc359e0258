"""The asyncio client: a session, and what works through it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketq.runtime.on_demand import names_on_demand

if TYPE_CHECKING:
    from rocketq.client.aio.public import *  # noqa: F403
else:  # its neighbours need few of them
    __getattr__, __dir__ = names_on_demand(globals())
