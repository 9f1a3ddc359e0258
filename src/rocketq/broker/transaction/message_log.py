"""Reads and writes the messages of transactions in the log: halves, ops and outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Protocol

from rocketq.broker.transaction.half_messages import QUEUE_ID, Half, Op, read_op
from rocketq.broker.transaction.ledger import Outcome
from rocketq.model import Host, NewMessage, Record, SysFlag
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import CHECK_EXHAUSTED_TOPIC, HALF_OP_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, Property
from rocketq.store import AppendResult, ReadResult, ReadStatus, StoreReader

READ_COUNT: Final = 1_000
READ_BYTES: Final = 1 << 20
NAMESAKES_MAX: Final = 10_000
"""Limit of messages with one unique key that are read."""


class TransactionStore(Protocol):
    """The part of a store that transactions use."""

    @property
    def log_start(self) -> int: ...
    def append(self, message: NewMessage, *, wait: bool = True) -> AppendResult: ...
    def message_at(self, log_offset: int) -> Record | None: ...
    def queued_message_at(self, log_offset: int) -> Record | None: ...
    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...
    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int: ...
    def offset_by_time(self, topic: str, queue_id: int, time_ms: int) -> int: ...
    def read(
        self, topic: str, queue_id: int, queue_offset: int, *, count_max: int, bytes_max: int | None
    ) -> ReadResult: ...


class KeyIndex(Protocol):
    """Index from keys to messages, which may be incomplete."""

    @property
    def is_whole(self) -> bool: ...
    def search(self, topic: str, key: str) -> list[int]:
        """Log offsets of messages that may have the key."""
        ...


class StoreIndex:
    """The key index of a store."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    @property
    def is_whole(self) -> bool:
        return self._store.is_index_complete

    def search(self, topic: str, key: str) -> list[int]:
        return self._store.find_key(topic, key, count_max=NAMESAKES_MAX)


class TransactionLog:
    def __init__(self, store: TransactionStore, index: KeyIndex, host: Host) -> None:
        self._store = store
        self._index = index
        self.host = host

    # single halves and ops

    @property
    def start(self) -> int:
        """The log's start."""
        return self._store.log_start

    def append(self, message: NewMessage) -> AppendResult:
        return self._store.append(message, wait=False)

    def half_at(self, log_offset: int) -> Half | None:
        record = self._store.queued_message_at(log_offset) if log_offset >= 0 else None
        return None if record is None or record.topic != HALF_TOPIC else Half.of(record)

    def root_of(self, half: Half) -> int:
        """Queue offset of the transaction's first half; -1 if its halves are deleted. Apache's copies lack it and are
        matched by unique key."""
        if half.recorded_root is not None:
            return half.recorded_root
        roots = [half.record.queue_offset] if half.record.topic == HALF_TOPIC else []
        if half.is_copy or not roots:
            twins = [twin for twin in self._by_key(HALF_TOPIC, half.unique_key) if twin.is_same_send(half)]
            roots += [twin.record.queue_offset if twin.recorded_root is None else twin.recorded_root for twin in twins]
        return min(roots, default=-1)

    # whole queues

    def has_messages(self, topic: str, queue_id: int) -> bool:
        return queue_id >= 0 and self._store.max_offset(topic, queue_id) > 0

    def half_bounds(self) -> tuple[int, int]:
        return self._bounds(HALF_TOPIC)

    def op_bounds(self) -> tuple[int, int]:
        return self._bounds(HALF_OP_TOPIC)

    def halves(self, low: int, high: int) -> Iterator[Half]:
        return (Half.of(record) for record in self._records(HALF_TOPIC, QUEUE_ID, low, high))

    def ops(self, low: int, high: int) -> Iterator[Op]:
        return (read_op(record) for record in self._records(HALF_OP_TOPIC, QUEUE_ID, low, high))

    # outcomes of transactions that are not open

    def outcome_of(self, root: int, half: Half) -> Outcome:
        if self.is_committed(root, half):
            return Outcome.COMMITTED
        if self.is_given_up(root, half) and not self._has_late_op(root):
            return Outcome.GIVEN_UP
        return Outcome.ROLLED_BACK

    def is_committed(self, root: int, half: Half) -> bool:
        """Whether the real message was stored, from any copy of its half."""
        topics = [half.topic] if Property.DELAY not in half.properties else [half.topic, SCHEDULE_TOPIC]
        for topic in topics:
            if any(self._is_commit_of(found, root, half) for found in self._by_key(topic, half.unique_key)):
                return True
        if self._index.is_whole and half.unique_key:
            return False
        return any(self._is_commit_of(found, root, half) for found in self._of_real_queue(root, half))

    def is_given_up(self, root: int, half: Half) -> bool:
        found = self._by_key(CHECK_EXHAUSTED_TOPIC, half.unique_key)
        if not self._index.is_whole or not half.unique_key:
            low, high = self._bounds(CHECK_EXHAUSTED_TOPIC)
            found += [Half.of(record) for record in self._records(CHECK_EXHAUSTED_TOPIC, QUEUE_ID, low, high)]
        return any(one.recorded_root in (None, root) and one.is_same_send(half) for one in found)

    def _has_late_op(self, root: int) -> bool:
        found = self._by_key(HALF_OP_TOPIC, str(root))
        if not self._index.is_whole:
            low, high = self.op_bounds()
            found += [Half.of(record) for record in self._records(HALF_OP_TOPIC, QUEUE_ID, low, high)]
        return any(one.properties.get(Property.KEYS) == str(root) for one in found)

    def _is_commit_of(self, found: Half, root: int, half: Half) -> bool:
        if found.record.sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.TRANSACTION_COMMIT:
            return False
        source = self.half_at(found.record.prepared_offset)
        return found.is_same_send(half) if source is None else self.root_of(source) == root

    def _by_key(self, topic: str, key: str) -> list[Half]:
        if not key:
            return []
        records = (self._store.message_at(log_offset) for log_offset in self._index.search(topic, key))
        found = (Half.of(record) for record in records if record is not None and record.topic == topic)
        return [one for one in found if key in (one.unique_key, one.properties.get(Property.KEYS))]

    def _of_real_queue(self, root: int, half: Half) -> Iterator[Half]:
        """All messages of the real queue since the first half, if the index is incomplete."""
        stored_ms = self._store.store_ms_of(HALF_TOPIC, QUEUE_ID, root)
        low = self._store.offset_by_time(half.topic, half.queue_id, stored_ms) if stored_ms >= 0 else 0
        records = self._records(half.topic, half.queue_id, low, self._store.max_offset(half.topic, half.queue_id))
        return (Half.of(record) for record in records)

    def _bounds(self, topic: str) -> tuple[int, int]:
        return max(0, self._store.min_offset(topic, QUEUE_ID)), self._store.max_offset(topic, QUEUE_ID)

    def _records(self, topic: str, queue_id: int, low: int, high: int) -> Iterator[Record]:
        at = low
        while at < high:
            result = self._store.read(topic, queue_id, at, count_max=READ_COUNT, bytes_max=READ_BYTES)
            if result.status is ReadStatus.FOUND:
                for record in decode_records(result.records):
                    if record.queue_offset >= high:
                        return
                    yield record
            if result.next_offset <= at:
                return
            at = result.next_offset
