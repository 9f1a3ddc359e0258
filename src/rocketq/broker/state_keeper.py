"""A broker's tables on disk: topics and groups at every change, offsets every few seconds and at the end."""

from __future__ import annotations

import asyncio
import logging

from rocketq.broker.consumer_offsets import OffsetTable
from rocketq.broker.group_table import GroupTable
from rocketq.broker.topic_table import TopicTable
from rocketq.store import StateFiles

log = logging.getLogger(__name__)


class StateKeeper:
    def __init__(self, files: StateFiles, topics: TopicTable, groups: GroupTable, offsets: OffsetTable) -> None:
        self._files = files
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._saved_changes = 0
        self._saving = asyncio.Lock()

    def load(self) -> None:
        """DamagedStateError when a file and its backup cannot be read: nothing is served then."""
        self._topics.load(self._files.topics.load())
        self._offsets.load(self._files.consumer_offsets.load())
        self._groups.load(self._files.groups.load())
        self._topics.listeners.append(self._files.topics.save)
        self._groups.listeners.append(self._files.groups.save)

    async def save_offsets(self) -> None:
        """When there is something new; on a thread of its own, since it waits for the disk."""
        async with self._saving:
            changes = self._offsets.changes
            if changes == self._saved_changes:
                return
            await asyncio.to_thread(self._files.consumer_offsets.save, self._offsets.snapshot())
            self._saved_changes = changes
