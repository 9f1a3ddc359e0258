"""The three interfaces through which the rest of the package reaches an open store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rocketq.kernel.admission import Generation
from rocketq.kernel.appender import Appender
from rocketq.kernel.reader import LogMap
from rocketq.model import NewMessage, Record
from rocketq.store.admission import Health
from rocketq.store.announcer import QueueListener
from rocketq.store.commit_log import LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import QueueTable
from rocketq.store.delivery_progress import DeliveryProgress
from rocketq.store.disk import DiskUsage
from rocketq.store.flush import FlushGate, ReplicaGate
from rocketq.store.page_loads import Loaded
from rocketq.store.queries import ExtensionFilter, RecordFilter, UnitFilter
from rocketq.store.queue_extensions import BitmapOf, Extension
from rocketq.store.redelivery import Redeliverer
from rocketq.store.results import AppendResult, QueryResult, ReadResult
from rocketq.store.timers import Timers


class StoreReader(Protocol):
    """Queues, messages and positions; nothing here changes the store."""

    @property
    def config(self) -> StoreConfig: ...
    @property
    def log_start(self) -> int: ...
    @property
    def log_end(self) -> int: ...
    @property
    def durable_to(self) -> int: ...
    @property
    def visible_to(self) -> int: ...
    @property
    def flushed_to(self) -> int:
        """The log is flushed up to here, independent of the configured durability."""
        ...

    @property
    def failure(self) -> str | None:
        """The error after which the store accepts no more messages, or None."""
        ...

    @property
    def disk_full(self) -> str | None:
        """Why messages are rejected when the disk is too full, or None."""
        ...

    @property
    def last_store_ms(self) -> int:
        """Store time of the newest message when the store was opened; 0 without any."""
        ...

    @property
    def is_index_complete(self) -> bool:
        """Whether the key index covers the whole log."""
        ...

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count_max: int = 32,
        bytes_max: int | None = None,
        tag_codes: frozenset[int] | None = None,
        unit_filter: UnitFilter | None = None,
        extension_filter: ExtensionFilter | None = None,
        record_filter: RecordFilter | None = None,
        correct_offset: bool = True,
        in_place: bool = False,
        resident_only: bool = False,
        loaded_to: int | None = None,
    ) -> ReadResult: ...
    def load(
        self,
        topic: str,
        queue_id: int,
        first: int,
        stop: int,
        *,
        count_max: int = 32,
        bytes_max: int | None = None,
        tag_codes: frozenset[int] | None = None,
    ) -> Loaded: ...
    def is_far(self, topic: str, queue_id: int, queue_offset: int) -> bool: ...
    def message_at(self, log_offset: int) -> Record | None: ...
    def queued_message_at(self, log_offset: int) -> Record | None:
        """The message at a log offset that a client named, if the entry of its queue points there."""
        ...

    def message_by_id(self, message_id: str) -> Record | None: ...
    def query(
        self, topic: str, key: str, *, count_max: int = 32, begin_ms: int = 0, end_ms: int = 1 << 62
    ) -> QueryResult: ...
    def find_key(self, topic: str, key: str, *, count_max: int) -> list[int]:
        """Log offsets of messages that may have a key, from the index only."""
        ...

    def topics(self) -> list[str]:
        """Topics that have queues, sorted."""
        ...

    def queue_ids(self, topic: str) -> list[int]:
        """The queues of a topic that exist, sorted."""
        ...

    def min_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offset(self, topic: str, queue_id: int) -> int: ...
    def max_offsets(self, topic: str, queue_count: int) -> list[int]:
        """`max_offset` of the queues [0, queue_count)."""
        ...

    def end_offset(self, topic: str, queue_id: int) -> int:
        """One past the last message, visible or not; 0 for a queue that does not exist."""
        ...

    def queue_unit(self, topic: str, queue_id: int, queue_offset: int) -> tuple[int, int, int] | None:
        """(log offset, size, tags code) of a queue entry; None where there is none."""
        ...

    def queue_extension(self, topic: str, queue_id: int, address: int) -> Extension | None:
        """What a queue entry keeps beside it, by the address in its tags code."""
        ...

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int, *, upper: bool = False) -> int: ...
    def store_ms_of(self, topic: str, queue_id: int, queue_offset: int) -> int: ...
    def is_cold(self, topic: str, queue_id: int, queue_offset: int) -> bool: ...
    def earliest_store_ms(self) -> int: ...
    def disk_usage(self, path: Path) -> DiskUsage: ...


class StoreWriter(StoreReader, Protocol):
    """Appends, what an answer waits for, and the upkeep that requests and services cause."""

    @property
    def gate(self) -> FlushGate: ...
    @property
    def replica_gate(self) -> ReplicaGate | None: ...
    @property
    def acknowledged_to(self) -> int: ...
    @property
    def refusal(self) -> str | None: ...
    @property
    def refusal_cause(self) -> str:
        """Why appends are rejected now, as one word for metrics."""
        ...

    def append(self, message: NewMessage, *, wait: bool = True) -> AppendResult: ...
    def append_batch(self, message: NewMessage, *, wait: bool = True) -> AppendResult: ...
    def flush(self) -> int: ...
    def clean(self) -> list[LogRange]: ...
    def delete_topic(self, topic: str, *, log_end: int | None = None) -> int: ...
    def add_listener(self, listener: QueueListener) -> None: ...
    def calculate_bitmaps(self, bitmap_of: BitmapOf) -> None: ...
    def redeliverer(self, *, may_deliver_to: Callable[[str], bool]) -> Redeliverer:
        """Moves messages of this store from a waiting queue to their own."""
        ...

    def delivery_progress(self) -> DeliveryProgress:
        """The progress page of the delay levels."""
        ...

    def timers(self, now_ms: int) -> Timers:
        """The timer files of this store."""
        ...


class StoreReplica(StoreReader, Protocol):
    """The log as another broker copies it or as it is copied from one."""

    @property
    def generation(self) -> Generation:
        """To be bumped by changes that admission of requests depends on."""
        ...

    @property
    def gate(self) -> FlushGate: ...
    @property
    def last_file_start(self) -> int:
        """Start of the log file for the next record."""
        ...

    def raw_range(self, log_offset: int, bytes_max: int) -> memoryview: ...
    def whole_range(self, log_offset: int, bytes_max: int) -> memoryview: ...
    def append_raw(self, log_offset: int, data: bytes, *, check_crc: bool = True) -> int: ...
    def append_stream(self, log_offset: int, data: bytes | memoryview) -> int: ...
    def start_at(self, log_offset: int) -> None: ...
    def truncate_to(self, log_offset: int) -> int: ...
    def sync_last_files(self) -> None:
        """Sync the last two log files, which may hold bytes of an earlier process that are not on disk."""
        ...

    def save_file(self, path: Path, data: bytes) -> None:
        """Replace a small file beside the log, synced with its directory."""
        ...

    def confirm(self, log_offset: int | None) -> None: ...
    def wait_for_replicas(self, gate: ReplicaGate | None) -> None:
        """Answers to appends wait for this gate from now on."""
        ...

    def reject_appends(self, reason: str | None) -> None:
        """Reject appends of clients because another broker writes this log; None: accept them."""
        ...

    def keep_log_from(self, position: Callable[[], int | None]) -> None:
        """Retention deletes nothing at or behind this position."""
        ...

    def add_append_listener(self, listener: Callable[[], None]) -> None: ...
    def remove_append_listener(self, listener: Callable[[], None]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FastPathAccess:
    """Made by `Store.fast_path_access`. Writing with `appender` or to `queues` requires `lock`."""

    appender: Appender
    """Writes records, queue units and index entries."""
    log_map: LogMap
    """The mapped log files."""
    lock: threading.RLock
    queues: QueueTable
    health: Health
    generation: Generation
    """Bumped whenever the store's config, health, replicas or queues change."""
    stored: Callable[[], None]
    """To be called with the lock held once the kernel has appended, before anybody else gets the lock."""
    append_listeners: list[Callable[[], None]]
    """Called after every append; empty while nothing waits for appends."""
    appended: Callable[[], None]
    """Announce what the kernel appended, or request a flush. Called without the lock."""
    announce_while: Callable[[Callable[[], bool]], None]
    """Announce new messages immediately only while the given function returns True."""
    first_file: Callable[[], int | None]
    """Start of the oldest log file; None without any."""
    memory_bytes: Callable[[], int]
    """How far behind the log's end a record counts as being in memory."""
