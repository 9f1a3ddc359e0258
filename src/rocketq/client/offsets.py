"""Offsets of consumer groups: queue bounds, offset stores, and the offsets a consumer has reached."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

try:
    import fcntl
except ImportError:  # not on Windows: files are not locked there
    fcntl = None  # type: ignore[assignment]

from rocketq.client.core.offsets import (
    OffsetTable,
    QueueBounds,
    ResetKind,
    ResetTo,
    StartRule,
    decode_offset_file,
    encode_offset_file,
    start_rule,
    target_of,
)
from rocketq.client.core.routes import broker_addr
from rocketq.client.errors import ClientError, NoQueueError
from rocketq.client.fan_out import on_each
from rocketq.client.session import Session
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import ConsumeFromWhere
from rocketq.protocol.headers.offsets import (
    MaxOffsetRequest,
    MinOffsetRequest,
    OffsetResponse,
    QueryOffsetRequest,
    SearchOffsetRequest,
    UpdateOffsetRequest,
)
from rocketq.protocol.headers.wire import Header

log = logging.getLogger(__name__)


class QueuePositions:
    """Offset bounds and time lookups, answered by the broker that has the queue."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def addr(self, queue: MessageQueue) -> str:
        route = await self._session.routes.get(queue.topic)
        addr = broker_addr(route, queue.broker_name)
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not in the route")
        return addr

    async def bounds(self, queue: MessageQueue) -> QueueBounds:
        topic, queue_id = queue.topic, queue.queue_id
        first = await self._offset(queue, MinOffsetRequest(topic=topic, queue_id=queue_id))
        end = await self._offset(queue, MaxOffsetRequest(topic=topic, queue_id=queue_id))
        return QueueBounds(min_offset=max(0, first), max_offset=max(0, first, end))

    async def at_time(self, queue: MessageQueue, time_ms: int) -> int:
        """The offset of the first message stored at or after this time; the end if there is none."""
        request = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=time_ms)
        return max(0, await self._offset(queue, request))

    async def resolve(self, queue: MessageQueue, to: ResetTo) -> tuple[QueueBounds, int]:
        """The bounds of a queue, and the offset that `to` resolves to."""
        bounds = await self.bounds(queue)
        by_time = await self.at_time(queue, to.value) if to.kind is ResetKind.TIME else None
        return bounds, target_of(to, bounds, by_time)

    async def _offset(self, queue: MessageQueue, request: Header) -> int:
        answer = await self._session.call(await self.addr(queue), request)
        return OffsetResponse.decode(answer.ext_fields).queue_offset


OFFSET_TIMEOUT_MS: Final = 5_000
FILE_NAME: Final = "offsets.json"


class OffsetStore(Protocol):
    """Stores the offset of the next message to consume. Implement these two methods to keep offsets elsewhere."""

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        """None if nothing was saved; raises a RocketQError if the store is unavailable: the caller retries later."""
        ...

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Save all offsets, also lower ones; raises a RocketQError on failure: the caller retries later."""
        ...


class RemoteOffsets:
    """Offsets kept by brokers, for groups that share queues."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        request = QueryOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id)
        accept = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)
        addr = await self._addr(queue)
        answer = await self._session.call(addr, request, timeout_ms=OFFSET_TIMEOUT_MS, accept=accept)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return OffsetResponse.decode(answer.ext_fields).queue_offset

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        await on_each({queue: self._save(group, queue, offset) for queue, offset in offsets.items()})

    async def _save(self, group: str, queue: MessageQueue, offset: int) -> None:
        request = UpdateOffsetRequest(group=group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=offset)
        await self._session.call(await self._addr(queue), request, timeout_ms=OFFSET_TIMEOUT_MS)

    async def _addr(self, queue: MessageQueue) -> str:
        route = await self._session.routes.get(queue.topic)
        addr = broker_addr(route, queue.broker_name)
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not in the route")
        return addr


class MemoryOffsets:
    """Offsets in memory, lost with the process."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, MessageQueue], int] = {}

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        return self._offsets.get((group, queue))

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update({(group, queue): offset for queue, offset in offsets.items()})


class OffsetFileError(ClientError):
    """The offset file cannot be used: it is unreadable, or another consumer has it open. Nothing was changed."""

    def __init__(self, path: Path, reason: str, hint: str = "move it away to start without offsets") -> None:
        super().__init__(f"offset file {path}: {reason}; {hint}")
        self.path = path
        self.reason = reason


class FileOffsets:
    """`<folder>/<group>/offsets.json`, which Apache's clients can read, locked against other consumers."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)
        self._groups: dict[str, dict[MessageQueue, int]] = {}
        self._locks: dict[str, int] = {}
        self._lock = asyncio.Lock()

    def path(self, group: str) -> Path:
        return self._folder / group.replace("/", "_") / FILE_NAME

    async def open(self, group: str) -> None:
        """Lock and read the file of a group; OffsetFileError if it is in use or unreadable."""
        async with self._lock:
            await self._of(group)

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        async with self._lock:
            return (await self._of(group)).get(queue)

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._lock:
            table = await self._of(group)
            table.update(offsets)
            await _to_the_end(asyncio.to_thread(_write, self.path(group), encode_offset_file(table)))

    async def close(self, group: str) -> None:
        """Release the lock of a group; the next use takes it again."""
        async with self._lock:
            self._groups.pop(group, None)
            if (lock := self._locks.pop(group, None)) is not None:
                os.close(lock)

    async def _of(self, group: str) -> dict[MessageQueue, int]:
        if group not in self._groups:
            path = self.path(group)
            if group not in self._locks:
                self._locks[group] = await asyncio.to_thread(_lock_file, path)
            try:
                self._groups[group] = await asyncio.to_thread(_read, path)
            except BaseException:
                os.close(self._locks.pop(group))
                raise
        return self._groups[group]


def _lock_file(path: Path) -> int:
    """A descriptor that holds the lock of an offset file until it is closed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
    except OSError as error:
        raise OffsetFileError(path, str(error), "set another offset_dir") from None
    try:
        if fcntl is not None:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        hint = "set another SessionConfig.instance_name or offset_dir"
        raise OffsetFileError(path, "another consumer uses it", hint) from None
    return lock


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Wait to the end even if cancelled: a thread cannot be cancelled, and two must not write one file."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _read(path: Path) -> dict[MessageQueue, int]:
    """The file, or its backup; OffsetFileError when there are files but none is whole."""
    reason: Exception | None = None
    for candidate in (path, path.with_suffix(".json.bak")):
        try:
            return decode_offset_file(candidate.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, RocketQError) as error:
            log.warning("%s cannot be read: %s", candidate, error)
            reason = reason or error
    if reason is not None:
        raise OffsetFileError(path, str(reason))
    return {}


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(".json.tmp")
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            path.replace(path.with_suffix(".json.bak"))
        fresh.replace(path)
    except OSError as error:
        raise OffsetFileError(path, str(error)) from None


class ConsumerOffsets:
    """The offsets of a consumer group: the table of reached offsets, and its store."""

    def __init__(
        self,
        store: OffsetStore,
        positions: QueuePositions,
        group: str,
        *,
        from_where: ConsumeFromWhere,
        from_time_ms: int,
    ) -> None:
        self.table = OffsetTable()
        self.goes_with_pulls = isinstance(store, RemoteOffsets)
        """Whether pulls may carry offsets to commit."""
        self._store = store
        self._positions = positions
        self._group = group
        self._from_where = from_where
        self._from_time_ms = from_time_ms

    async def open(self) -> None:
        """Lock the offset file of a broadcasting consumer; OffsetFileError if another consumer has it."""
        if isinstance(self._store, FileOffsets):
            await self._store.open(self._group)

    async def close(self) -> None:
        if isinstance(self._store, FileOffsets):
            await self._store.close(self._group)

    async def start_of(self, queue: MessageQueue) -> int:
        """The start offset of a queue that was just assigned."""
        committed = await self.load(queue)
        if committed is not None:
            return committed
        match start_rule(self._from_where, queue.topic):
            case StartRule.END:
                return (await self._positions.bounds(queue)).max_offset
            case StartRule.TIME:
                return await self._positions.at_time(queue, self._from_time_ms)
        return 0

    async def load(self, queue: MessageQueue) -> int | None:
        """The saved offset; raises a RocketQError if the store is unavailable."""
        offset = await self._store.load(self._group, queue)
        if offset is None or offset < 0:
            self.table.forget(queue)
            return None
        self.table.learn(queue, offset)
        return offset

    async def peek(self, queue: MessageQueue) -> int | None:
        """The saved offset, without changing the table."""
        return await self._store.load(self._group, queue)

    async def save(self, queues: Collection[MessageQueue] | None = None) -> bool:
        """Save changed offsets of these queues or of all; False if some could not be saved and are retried later."""
        changed = self.table.unsaved(queues)
        if not changed:
            return True
        try:
            await self._store.save(self._group, changed)
        except RocketQError as error:
            log.warning("group %s: offsets were not saved: %s", self._group, error)
            return False
        except Exception:  # a user's store must not stop the consumer
            log.exception("group %s: the offset store failed", self._group)
            return False
        for queue, offset in changed.items():
            self.table.saved(queue, offset)
        return True

    async def set(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset, also lower than before, and save it immediately."""
        self.table.update(queue, offset)
        await self.save([queue])

    async def give_away(self, queue: MessageQueue) -> None:
        await self.save([queue])
        self.table.forget(queue)
