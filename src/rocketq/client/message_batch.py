"""Several received messages of one queue, made into objects only when they are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, overload

from rocketq.client.core.stored_messages import StoredMessage, inflated
from rocketq.protocol.bodies.queues import MessageQueue

if TYPE_CHECKING:
    import pyarrow


class Part(Protocol):
    """Messages that came in one answer: a RecordBatch, or a MessageList."""

    @property
    def count(self) -> int: ...

    def messages(self) -> list[StoredMessage]: ...

    def bodies(self, inflate: Callable[[bytes, int], bytes]) -> list[bytes]: ...

    def offsets(self) -> list[int]: ...


class MessageBatch(Sequence[StoredMessage]):
    """A sequence of messages. `bodies()`, `offsets` and `to_arrow()` make no message objects where none exist yet."""

    def __init__(
        self,
        queue: MessageQueue,
        parts: Sequence[Part] = (),
        messages: list[StoredMessage] | None = None,
        commit: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.queue = queue
        self._parts = parts
        self._messages = messages
        self._commit = commit

    def bodies(self) -> list[bytes]:
        """The bodies, inflated."""
        if self._messages is not None:
            return [message.body for message in self._messages]
        return [body for part in self._parts for body in part.bodies(_inflate)]

    @property
    def offsets(self) -> list[int]:
        """The queue offsets."""
        if self._messages is not None:
            return [message.queue_offset for message in self._messages]
        return [offset for part in self._parts for offset in part.offsets()]

    async def commit(self) -> None:
        """Save the offset behind the last message. Of a push consumer: returning from the listener does it."""
        if self._commit is not None:
            await self._commit()

    def to_arrow(self) -> pyarrow.RecordBatch:
        """Columns: topic, queue_id, queue_offset, message_id, tag, keys, body, properties, store_ms. Needs pyarrow."""
        import pyarrow as pa  # noqa: PLC0415  # an extra

        messages = self._all()
        columns: dict[str, tuple[Any, pyarrow.DataType]] = {
            "topic": ([each.topic for each in messages], pa.string()),
            "queue_id": ([each.queue.queue_id for each in messages], pa.int32()),
            "queue_offset": (self.offsets, pa.int64()),
            "message_id": ([each.message_id for each in messages], pa.string()),
            "tag": ([each.tag for each in messages], pa.string()),
            "keys": ([list(each.keys) for each in messages], pa.list_(pa.string())),
            "body": (self.bodies(), pa.binary()),
            "properties": ([list(each.properties.items()) for each in messages], pa.map_(pa.string(), pa.string())),
            "store_ms": ([each.store_ms for each in messages], pa.timestamp("ms", tz="UTC")),
        }
        arrays = [pa.array(values, type=kind) for values, kind in columns.values()]
        return pa.RecordBatch.from_arrays(arrays, names=list(columns))

    def __len__(self) -> int:
        return len(self._messages) if self._messages is not None else sum(part.count for part in self._parts)

    def __iter__(self) -> Iterator[StoredMessage]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...

    @overload
    def __getitem__(self, index: slice) -> list[StoredMessage]: ...

    def __getitem__(self, index: int | slice) -> StoredMessage | list[StoredMessage]:
        return self._all()[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"MessageBatch({self.queue!r}, {len(self)} messages)"

    def _all(self) -> list[StoredMessage]:
        if self._messages is None:
            self._messages = [message for part in self._parts for message in part.messages()]
        return self._messages


class BlockingMessageBatch(MessageBatch):
    """A MessageBatch whose commit() waits."""

    def __init__(self, batch: MessageBatch, commit: Callable[[], None]) -> None:
        super().__init__(batch.queue, batch._parts, batch._messages)
        self._commit_now = commit

    def commit(self) -> None:  # type: ignore[override]
        """Save the offset behind the last message."""
        self._commit_now()


def _inflate(body: bytes, sys_flag: int) -> bytes:
    return inflated(body, sys_flag)[0]
