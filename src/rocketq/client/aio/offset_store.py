"""Where offsets of a group are kept: with the brokers, in a file, in memory, or in a store of a user's own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

from rocketq.client.aio.scatter import on_each
from rocketq.client.aio.session import Session
from rocketq.client.core.offset_table import decode_offset_file, encode_offset_file
from rocketq.client.core.routes import broker_addr
from rocketq.client.errors import ClientError, NoQueueError
from rocketq.errors import RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.headers.offsets import OffsetResponse, QueryOffsetRequest, UpdateOffsetRequest

OFFSET_TIMEOUT_MS: Final = 5_000
FILE_NAME: Final = "offsets.json"

log = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """Offsets are those of the next message to consume. Whoever keeps them elsewhere implements these two."""

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        """None where nothing was ever saved; a RocketQError when that cannot be told now: it is asked again later."""
        ...

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """All of them, also lower ones; a RocketQError when that failed: they are saved again later."""
        ...


class RemoteOffsets:
    """With the brokers, as groups that share queues need it."""

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
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not there at present")
        return addr


class MemoryOffsets:
    """Gone with the process."""

    def __init__(self) -> None:
        self._offsets: dict[tuple[str, MessageQueue], int] = {}

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        return self._offsets.get((group, queue))

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        self._offsets.update({(group, queue): offset for queue, offset in offsets.items()})


class OffsetFileError(ClientError):
    """Neither the file of offsets nor its backup can be read; nothing was changed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}; move it away to start without offsets")
        self.path = path
        self.reason = reason


class FileOffsets:
    """`<folder>/<group>/offsets.json`, which Apache's clients can read. One consumer at a time may use it."""

    def __init__(self, folder: Path) -> None:
        self._folder = Path(folder)
        self._groups: dict[str, dict[MessageQueue, int]] = {}
        self._lock = asyncio.Lock()

    def path(self, group: str) -> Path:
        return self._folder / group.replace("/", "_") / FILE_NAME

    async def load(self, group: str, queue: MessageQueue) -> int | None:
        async with self._lock:
            return (await self._of(group)).get(queue)

    async def save(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._lock:
            table = await self._of(group)
            table.update(offsets)
            await _to_the_end(asyncio.to_thread(_write, self.path(group), encode_offset_file(table)))

    async def _of(self, group: str) -> dict[MessageQueue, int]:
        if group not in self._groups:
            self._groups[group] = await asyncio.to_thread(_read, self.path(group))
        return self._groups[group]


async def _to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Also when whoever waits for it is cancelled: a thread cannot be, and two must not write one file."""
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
