"""What the store answers."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from rocketq.model import Host, Record, encode_message_id


class AppendStatus(enum.Enum):
    """How an append went; the first four mean that the message is stored."""

    OK = "PUT_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"
    SERVICE_NOT_AVAILABLE = "SERVICE_NOT_AVAILABLE"
    CREATE_FILE_FAILED = "CREATE_MAPEDFILE_FAILED"
    MESSAGE_ILLEGAL = "MESSAGE_ILLEGAL"
    PROPERTIES_SIZE_EXCEEDED = "PROPERTIES_SIZE_EXCEEDED"
    PAGE_CACHE_BUSY = "OS_PAGECACHE_BUSY"
    UNKNOWN_ERROR = "UNKNOWN_ERROR"

    @property
    def stored(self) -> bool:
        return self in _STORED


_STORED = (  # not a set: hashing a member is a call
    AppendStatus.OK,
    AppendStatus.FLUSH_DISK_TIMEOUT,
    AppendStatus.FLUSH_SLAVE_TIMEOUT,
    AppendStatus.SLAVE_NOT_AVAILABLE,
)


@dataclass(slots=True)
class AppendResult:
    """Where a message (the first of a batch) went, or why it did not."""

    status: AppendStatus
    reason: str = ""
    log_offset: int = -1
    queue_offset: int = -1
    size: int = 0
    store_ms: int = 0
    log_offsets: tuple[int, ...] = ()
    store_host: Host | None = None

    @property
    def end(self) -> int:
        """Log position behind the last byte: what durability is waited for."""
        return self.log_offset + self.size

    @property
    def message_ids(self) -> list[str]:
        if self.store_host is None:
            return []
        return [encode_message_id(self.store_host, offset) for offset in self.log_offsets]

    @property
    def message_id(self) -> str:
        """Ids of a batch are joined by commas, as clients expect them."""
        return ",".join(self.message_ids)


class ReadStatus(enum.Enum):
    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_FOUND_NULL = "OFFSET_FOUND_NULL"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"
    NOT_RESIDENT = "NOT_RESIDENT"
    """Only of a read of resident records: the next one is on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadResult:
    """Records back to back (or their places, see kernel/reader.py), their bytes, and where to read next."""

    status: ReadStatus
    next_offset: int
    min_offset: int
    max_offset: int
    records: bytes = b""
    count: int = 0
    size_bytes: int = 0
    bad_count: int = 0
    suggest_slave: bool = False


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Records of a key, oldest first; how far the index reached when it was asked."""

    records: tuple[Record, ...]
    index_end_ms: int
    index_end_offset: int
