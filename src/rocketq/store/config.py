"""Settings of the store: typed, units in the names, Apache's key for each declared once."""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from rocketq.errors import ConfigError
from rocketq.model import Host
from rocketq.protocol.config_text import parse_value

PAGE_BYTES = 4096
UNIT_BYTES = 20
EXTENSION_FILE_BYTES_MIN = 64
TEXT_CHARS_MAX = 65_536
DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"

_SPAN_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


class FlushType(enum.Enum):
    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


def option(key: str, default: Any, about: str, *, low: int = 0, high: int | None = None, live: bool = False) -> Any:
    """A field that Apache's broker.conf calls `key`; `about` is its line in the reference; numbers are within `low` and
    `high`. `live`: it can be changed while the broker runs."""
    return field(default=default, metadata={"key": key, "about": about, "low": low, "high": high, "live": live})


def live(key: str, default: Any, about: str, *, low: int = 0, high: int | None = None) -> Any:
    """A setting that `Store.reconfigure` can change while the store is open."""
    return option(key, default, about, low=low, high=high, live=True)


def require_bounds(config: Any) -> None:
    """ConfigError if a number is outside its bounds, or a text is too long."""
    for item in fields(config):
        value, key = getattr(config, item.name), item.metadata.get("key", item.name)
        if isinstance(value, str):
            require(len(value) <= TEXT_CHARS_MAX, f"{key} has more than {TEXT_CHARS_MAX} characters")
        if not isinstance(value, int | float) or isinstance(value, bool):
            continue
        low, high = item.metadata.get("low", 0), item.metadata.get("high")
        require(value >= low, f"{key}={value} is too small: {low} or more is allowed")
        require(high is None or value <= high, f"{key}={value} is too large: {high} or less is allowed")


@functools.lru_cache(maxsize=16)
def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each delay level of `1s 5s ... 2h`; level n is item n - 1."""
    spans = []
    for word in text.split():
        match = re.fullmatch(r"(\d+)([smhd])", word)
        if match is None:
            raise ConfigError(f"messageDelayLevel: {word!r} is not a number with s, m, h or d")
        spans.append(int(match[1]) * _SPAN_MS[match[2]])
    if not spans:
        raise ConfigError("messageDelayLevel: no levels")
    return tuple(spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreConfig:
    """All settings of a store."""

    root: Path
    store_host: Host = field(default_factory=lambda: Host.of("127.0.0.1", 10911))
    commit_log_dir: Path | None = option(
        "storePathCommitLog", None, "Folder of the commit log. Empty: `commitlog` in the store's root."
    )

    segment_bytes: int = option(
        "mappedFileSizeCommitLog",
        1 << 30,
        "Size of a commit log file; whole pages of 4,096 bytes, below 2 GiB.",
        low=4_096,
        high=0x7FFFFFFF,
    )
    queue_file_bytes: int = option(
        "mappedFileSizeConsumeQueue",
        300_000 * UNIT_BYTES,
        "Size of a consume queue file; rounded up to whole entries of 20 bytes.",
    )
    index_slots: int = option("maxHashSlotNum", 5_000_000, "Hash slots of an index file.", low=1)
    index_units: int = option("maxIndexNum", 20_000_000, "Entries of an index file.", low=2)
    index_enabled: bool = option("messageIndexEnable", True, "Index messages by key.")
    queue_extensions: bool = option(
        "enableConsumeQueueExt", False, "Keep extensions of queue entries (properties for filters)."
    )
    extension_file_bytes: int = option(
        "mappedFileSizeConsumeQueueExt", 48 << 20, "Size of a file with extensions of queue entries."
    )
    message_bytes_max: int = live("maxMessageSize", 4 << 20, "Largest message body.", low=256)
    delay_levels: str = option("messageDelayLevel", DEFAULT_DELAY_LEVELS, "Delay of each level, level 1 first.")

    flush_type: FlushType = live(
        "flushDiskType", FlushType.ASYNC_FLUSH, "ASYNC_FLUSH, or SYNC_FLUSH (answers wait for the disk)."
    )
    flush_interval_ms: int = live(
        "flushIntervalCommitLog", 500, "Time between two syncs of the log with ASYNC_FLUSH.", low=1
    )
    flush_pages_min: int = live("flushCommitLogLeastPages", 4, "Unsynced pages below which a sync is postponed.")
    flush_thorough_interval_ms: int = live(
        "flushCommitLogThoroughInterval", 10_000, "Time after which the log is synced whatever is pending."
    )
    sync_flush_timeout_ms: int = live(
        "syncFlushTimeout", 5_000, "Longest wait of a send for the disk with SYNC_FLUSH.", low=1
    )
    queue_flush_interval_ms: int = live(
        "flushIntervalConsumeQueue", 1_000, "Time between two syncs of the consume queues.", low=1
    )
    queue_flush_pages_min: int = live(
        "flushConsumeQueueLeastPages", 2, "Unsynced pages below which a consume queue is not synced."
    )
    queue_flush_thorough_interval_ms: int = live(
        "flushConsumeQueueThoroughInterval", 60_000, "Time after which all consume queues are synced."
    )
    transient_buffer: bool = option(
        "transientStorePoolEnable", False, "Write to a buffer first and to the log file later (ASYNC_FLUSH only)."
    )
    commit_interval_ms: int = live(
        "commitIntervalCommitLog", 200, "Time between two writes of the transient buffer to the log file.", low=1
    )
    commit_pages_min: int = live(
        "commitCommitLogLeastPages", 4, "Unwritten pages of the transient buffer below which a write is postponed."
    )
    commit_thorough_interval_ms: int = live(
        "commitCommitLogThoroughInterval", 200, "Time after which the transient buffer is written whatever is pending."
    )
    page_cache_busy_ms: int = live(
        "osPageCacheBusyTimeOutMills",
        1_000,
        "Time an append may hold the log before new sends are rejected as busy.",
        low=10,
    )

    check_crc_on_read: bool = live("checkCrcOnRead", True, "Verify the checksum of records that are read.")
    check_crc_on_recovery: bool = option("checkCRCOnRecover", True, "Verify the checksum of records at recovery.")
    read_ahead: bool = live("dataReadAheadEnable", True, "Let the kernel read ahead in log files.")
    memory_read_bytes_max: int = live(
        "maxTransferBytesOnMessageInMemory",
        256 << 10,
        "Bytes of an answer to a pull whose messages are in memory.",
        low=1,
    )
    memory_read_count_max: int = live(
        "maxTransferCountOnMessageInMemory", 32, "Messages of an answer to a pull whose messages are in memory.", low=1
    )
    disk_read_bytes_max: int = live(
        "maxTransferBytesOnMessageInDisk", 64 << 10, "Bytes of an answer to a pull whose messages are on disk.", low=1
    )
    disk_read_count_max: int = live(
        "maxTransferCountOnMessageInDisk", 8, "Messages of an answer to a pull whose messages are on disk.", low=1
    )
    memory_ratio_percent: int = live(
        "accessMessageInMemoryMaxRatio",
        40,
        "Distance from the log's end, in percent of memory, within which messages count as in memory.",
        high=100,
    )
    query_count_max: int = live("maxMsgsNumBatch", 64, "Messages of an answer to a query by key.", low=1)

    reserved_hours: int = live("fileReservedTime", 72, "Age after which log files are deleted.")
    delete_when: str = live("deleteWhen", "04", "Hours of the day at which old files are deleted, separated by `;`.")
    disk_used_percent_max: int = live(
        "diskMaxUsedSpaceRatio",
        75,
        "Disk usage in percent above which old files are deleted at any hour.",
        low=1,
        high=100,
    )
    disk_refuse_ratio: float = live(
        "diskSpaceWarningLevelRatio", 0.90, "Disk usage (0 to 1) above which messages are rejected."
    )
    disk_force_clean_ratio: float = live(
        "diskSpaceCleanForciblyRatio",
        0.85,
        "Disk usage (0 to 1) above which the oldest files are deleted before their time.",
    )
    force_clean_enabled: bool = live("cleanFileForciblyEnable", True, "Delete files before their time on a full disk.")
    clean_interval_ms: int = live("cleanResourceInterval", 10_000, "Time between two checks for old files.", low=10)
    delete_pause_ms: int = live("deleteCommitLogFilesInterval", 100, "Pause between the deletion of two log files.")
    idle_mapping_ms: int = 180_000

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", Path(self.root))
        if isinstance(self.flush_type, str):
            object.__setattr__(self, "flush_type", parse_value("flushDiskType", self.flush_type, FlushType.ASYNC_FLUSH))
        for item in fields(self):
            _require_type(item.metadata.get("key", item.name), getattr(self, item.name), item.default)
        require_bounds(self)
        rounded = -(-self.queue_file_bytes // UNIT_BYTES) * UNIT_BYTES
        object.__setattr__(self, "queue_file_bytes", rounded)
        require(self.segment_bytes % PAGE_BYTES == 0, "mappedFileSizeCommitLog must be whole pages of 4096 bytes")
        require(self.queue_file_bytes >= UNIT_BYTES, "mappedFileSizeConsumeQueue must hold at least one unit")
        require(self.extension_file_bytes >= EXTENSION_FILE_BYTES_MIN, "mappedFileSizeConsumeQueueExt is too small")
        require(self.extension_file_bytes <= 0x7FFFFFFF, "mappedFileSizeConsumeQueueExt must stay below 2 GiB")
        require(
            0 < self.message_bytes_max < self.segment_bytes,
            f"maxMessageSize {self.message_bytes_max} must be below mappedFileSizeCommitLog {self.segment_bytes}",
        )
        require(
            not (self.transient_buffer and self.flush_type is FlushType.SYNC_FLUSH),
            "transientStorePoolEnable works with flushDiskType ASYNC_FLUSH only",
        )
        require(0 < self.disk_force_clean_ratio <= self.disk_refuse_ratio <= 1, "disk ratios must rise up to 1")
        hours = self.delete_when.split(";")
        require(
            all(h.strip().isdigit() and int(h) < 24 for h in hours), f"deleteWhen {self.delete_when!r}: hours 00-23"
        )
        parse_delay_levels(self.delay_levels)

    @property
    def log_dir(self) -> Path:
        return self.commit_log_dir or self.root / "commitlog"

    @property
    def queue_file_units(self) -> int:
        return self.queue_file_bytes // UNIT_BYTES

    @property
    def index_file_bytes(self) -> int:
        return 40 + 4 * self.index_slots + 20 * self.index_units

    @property
    def delete_hours(self) -> frozenset[int]:
        return frozenset(int(hour) for hour in self.delete_when.split(";"))

    @property
    def delays_ms(self) -> list[int]:
        return list(parse_delay_levels(self.delay_levels))

    @classmethod
    def from_java(cls, settings: Mapping[str, str], **given: Any) -> StoreConfig:
        """From Apache's keys; keys that are not the store's are left to others. `given` wins."""
        return cls(**(_read_java(settings) | given))

    def with_java(self, settings: Mapping[str, str]) -> StoreConfig:
        """These settings and otherwise the present ones; keys that are not the store's are left to others."""
        return replace(self, **_read_java(settings))

    def changed_to(self, other: StoreConfig) -> dict[str, bool]:
        """Keys (or names, where Apache has no key) that differ, and whether each can change in an open store."""
        return {
            item.metadata.get("key", item.name): item.metadata.get("live", False)
            for item in fields(self)
            if getattr(self, item.name) != getattr(other, item.name)
        }


def _read_java(settings: Mapping[str, str]) -> dict[str, Any]:
    known = {item.metadata["key"]: item for item in fields(StoreConfig) if "key" in item.metadata}
    return {
        known[key].name: parse_value(key, text, known[key].default) for key, text in settings.items() if key in known
    }


def _require_type(key: str, value: object, default: object) -> None:
    """Every setting has the type of its default; numbers count something, so they are not negative."""
    if isinstance(default, bool):
        require(isinstance(value, bool), f"{key} must be true or false, not {value!r}")
    elif isinstance(default, int | float):
        kind = int if isinstance(default, int) else (int, float)
        require(isinstance(value, kind) and not isinstance(value, bool), f"{key} must be a number, not {value!r}")
        require(cast(float, value) >= 0, f"{key} must not be negative: {value!r}")
    elif isinstance(default, FlushType | str):
        require(isinstance(value, type(default)), f"{key} must be a {type(default).__name__}, not {value!r}")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise ConfigError(message)
