"""A broker's tables on disk: topics and groups at every change, offsets every few seconds and at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.topics.table import TopicTable
from rocketq.store import StateFiles

log = logging.getLogger(__name__)

Save = Callable[[], None]
MakeSave = Callable[[], Save]
"""Copies a table as it is now, which takes as long as the table is large: once per write, not once per change."""


class StateKeeper:
    """Another thread writes, since that waits for the disk. Changes made while it writes are written together next.

    `changes` counts those of topics and groups; who made one and waits for `settle` has it on disk.
    """

    def __init__(self, files: StateFiles, topics: TopicTable, groups: GroupTable, offsets: OffsetTable) -> None:
        self._files = files
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._saved_offset_changes = 0
        self._saving_offsets = asyncio.Lock()
        self.changes = 0
        self._settled_changes = 0
        self._unsaved: set[MakeSave] = set()
        self._saving: asyncio.Task[None] | None = None
        self._told = ""

    def load(self) -> None:
        """DamagedStateError when a file and its backup cannot be read: nothing is served then."""
        self._topics.load(self._files.topics.load())
        self._offsets.load(self._files.consumer_offsets.load())
        self._groups.load(self._files.groups.load())
        self._topics.listeners.append(partial(self._note, self._topics_save))
        self._groups.listeners.append(partial(self._note, self._groups_save))

    # topics and groups

    @property
    def is_settled(self) -> bool:
        return self._settled_changes >= self.changes

    async def settle(self) -> None:
        """Returns when every change so far is on disk; raises what keeps one from getting there."""
        target = self.changes
        while self._settled_changes < target:
            await asyncio.shield(self._save_soon())  # the next change must not wait for who gave up waiting

    def _note(self, make_save: MakeSave) -> None:
        self.changes += 1
        self._unsaved.add(make_save)
        self._save_soon()

    def _topics_save(self) -> Save:
        return partial(self._files.topics.save, self._topics.snapshot())

    def _groups_save(self) -> Save:
        return partial(self._files.groups.save, self._groups.snapshot())

    def _save_soon(self) -> asyncio.Task[None]:
        """The write under way, or a new one: one that has ended covers nothing that came behind it."""
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save())
            self._saving.add_done_callback(self._saved)
        return self._saving

    async def _save(self) -> None:
        await asyncio.sleep(0)  # so that all changes of one request go together
        upto, unsaved = self.changes, self._unsaved
        self._unsaved = set()
        try:
            await asyncio.to_thread(_run_all, [make_save() for make_save in unsaved])
        except BaseException:
            self._unsaved |= unsaved
            raise
        self._settled_changes = upto

    def _saved(self, task: asyncio.Task[None]) -> None:
        if self._saving is task:
            self._saving = None
        if task.cancelled():
            return
        if (failure := task.exception()) is not None:  # it is tried again at the next change, and regularly
            self._tell(failure)
        else:
            self._told = ""
            if not self.is_settled:
                self._save_soon()

    def _tell(self, failure: BaseException) -> None:
        """A full disk in one line, and not again until a save has worked."""
        if not isinstance(failure, OSError):
            log.error("topics or groups could not be saved", exc_info=failure)
        elif self._told != str(failure):
            self._told = str(failure)
            log.error("topics or groups could not be saved, it is tried again: %s", failure)

    # regularly, and at the end

    async def save(self) -> None:
        """Whatever is new."""
        try:
            await self.settle()
        finally:
            await self._save_offsets()

    async def _save_offsets(self) -> None:
        async with self._saving_offsets:
            changes = self._offsets.changes
            if changes == self._saved_offset_changes:
                return
            await asyncio.to_thread(self._files.consumer_offsets.save, self._offsets.snapshot())
            self._saved_offset_changes = changes


def _run_all(saves: Iterable[Save]) -> None:
    for save in saves:
        save()
