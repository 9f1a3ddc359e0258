"""Saves the broker tables: topics and groups on every change, offsets and filters every few seconds and at the
end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.pull.consumer_filters import ConsumerFilters, table_of
from rocketq.broker.topics.table import TopicTable
from rocketq.protocol.bodies import Body
from rocketq.protocol.bodies.groups import ConsumerFilterTable
from rocketq.protocol.fastjson import to_bytes
from rocketq.runtime.slices import collect
from rocketq.store import StateFile, StateFiles

log = logging.getLogger(__name__)

_State = TypeVar("_State", bound=Body)


async def save_in_slices(file: StateFile[_State], state: _State) -> None:
    """Save a table: encode it in slices of the event loop, write it on another thread."""
    data = to_bytes("".join(await collect(state.pieces("\n"))))
    await asyncio.to_thread(file.write, data)


class _Table(NamedTuple):
    """A table and its file; `state` copies the table, once per write."""

    file: StateFile[Any]
    state: Callable[[], Body]


class TableAutosave:
    """Saves topics and groups on every change, offsets periodically. Changes made during a write go into the next one.

    `changes` counts changes of topics and groups; `wait_saved` returns when all of them are on disk.
    """

    def __init__(self, files: StateFiles, topics: TopicTable, groups: GroupTable, offsets: OffsetTable) -> None:
        self._files = files
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._saved_offset_changes = 0
        self._saving_offsets = asyncio.Lock()
        self.changes = 0
        self._saved_changes = 0
        self._unsaved: set[_Table] = set()
        self._saving: asyncio.Task[None] | None = None
        self._last_failure = ""

    def load(self) -> None:
        """Load all tables. Raises DamagedStateError if a file and its backup are both unreadable; the broker does not
        start."""
        self._topics.load(self._files.topics.load())
        self._offsets.load(self._files.consumer_offsets.load())
        self._groups.load(self._files.groups.load())
        topics = _Table(self._files.topics, self._topics.snapshot)
        groups = _Table(self._files.groups, self._groups.snapshot)
        self._topics.listeners.append(partial(self._on_change, topics))
        self._groups.listeners.append(partial(self._on_change, groups))

    # topics and groups

    @property
    def is_saved(self) -> bool:
        return self._saved_changes >= self.changes

    async def wait_saved(self) -> None:
        """Wait until every change so far is on disk; raises the error of the write that failed."""
        target = self.changes
        while self._saved_changes < target:
            await asyncio.shield(self._save_soon())  # a cancelled waiter does not cancel the write

    def _on_change(self, table: _Table) -> None:
        self.changes += 1
        self._unsaved.add(table)
        self._save_soon()

    def _save_soon(self) -> asyncio.Task[None]:
        """The running write, or a new one: a finished write does not cover later changes."""
        if self._saving is None or self._saving.done():
            self._saving = asyncio.get_running_loop().create_task(self._save())
            self._saving.add_done_callback(self._saved)
        return self._saving

    async def _save(self) -> None:
        await asyncio.sleep(0)  # one write for all changes of a request
        upto, unsaved = self.changes, self._unsaved
        self._unsaved = set()
        try:
            for table in unsaved:
                await save_in_slices(table.file, table.state())
        except BaseException:
            self._unsaved |= unsaved
            raise
        self._saved_changes = upto

    def _saved(self, task: asyncio.Task[None]) -> None:
        if self._saving is task:
            self._saving = None
        if task.cancelled():
            return
        if (failure := task.exception()) is not None:  # retried at the next change, and periodically
            self._log_failure(failure)
        else:
            self._last_failure = ""
            if not self.is_saved:
                self._save_soon()

    def _log_failure(self, failure: BaseException) -> None:
        """Log a failed write; an OSError once, until a write succeeds."""
        if not isinstance(failure, OSError):
            log.error("topics or groups could not be saved", exc_info=failure)
        elif self._last_failure != str(failure):
            self._last_failure = str(failure)
            log.error("topics or groups could not be saved, retrying: %s", failure)

    # periodically, and at the end

    async def save(self) -> None:
        """Save all changed tables."""
        try:
            await self.wait_saved()
        finally:
            await self._save_offsets()

    async def _save_offsets(self) -> None:
        async with self._saving_offsets:
            changes = self._offsets.changes
            if changes == self._saved_offset_changes:
                return
            await save_in_slices(self._files.consumer_offsets, self._offsets.body())
            self._saved_offset_changes = changes


class FilterAutosave:
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
