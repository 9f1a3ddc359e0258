"""The groups' conditions on disk: every few seconds when something is new, and at the end."""

from __future__ import annotations

import asyncio

from rocketq.broker.admin.autosave import save_in_slices
from rocketq.broker.pull.consumer_filters import ConsumerFilters, table_of
from rocketq.protocol.bodies.groups import ConsumerFilterTable
from rocketq.runtime.slices import collect
from rocketq.store import StateFile


class FilterKeeper:
    def __init__(self, file: StateFile[ConsumerFilterTable], filters: ConsumerFilters) -> None:
        self._file = file
        self._filters = filters
        self._saved_changes = 0
        self._saving = asyncio.Lock()

    def load(self, now_ms: int) -> None:
        """DamagedStateError when the file and its backup cannot be read."""
        self._filters.load(self._file.load(), now_ms)

    async def save(self) -> None:
        async with self._saving:
            changes = self._filters.changes
            if changes != self._saved_changes:
                kept = await collect(self._filters.each_kept())
                await save_in_slices(self._file, table_of(kept))
                self._saved_changes = changes
