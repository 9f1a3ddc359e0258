"""When old files go: by age at a quiet hour, sooner when the disk fills up; and when a full disk refuses writes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from rocketq.store.commit_log import CommitLog, LogRange
from rocketq.store.config import StoreConfig
from rocketq.store.disk import Disk

log = logging.getLogger(__name__)

FILES_PER_PASS_MAX = 10
MANUAL_PASSES = 20


@dataclass(frozen=True, slots=True)
class DiskState:
    """What the fullest of the store's file systems calls for."""

    used_ratio: float
    refuse: str | None
    clean_now: bool
    above_limit: bool


def judge_disk(config: StoreConfig, ratios: dict[str, float]) -> DiskState:
    """Pure: used ratios by directory in, what follows out."""
    fullest = max(ratios, key=lambda name: ratios[name])
    ratio = ratios[fullest]
    refuse = None
    if ratio > config.disk_refuse_ratio:
        refuse = f"the disk of {fullest} is {ratio:.1%} full, writes are refused above {config.disk_refuse_ratio:.0%}"
    return DiskState(
        used_ratio=ratio,
        refuse=refuse,
        clean_now=ratio > config.disk_force_clean_ratio,
        above_limit=ratio > min(max(config.disk_used_percent_max, 10), 95) / 100,
    )


def expired(config: StoreConfig, modified_ms: int, now_ms: int) -> bool:
    return modified_ms + config.reserved_hours * 3_600_000 <= now_ms


class Retention:
    """One pass at a time. Consumer progress plays no part: a group left behind goes on at the new minimum.

    `keep_from` takes a log position that replicas or others still need: nothing at or behind it is deleted.
    """

    def __init__(
        self, config: StoreConfig, disk: Disk, commit_log: CommitLog, on_deleted: Callable[[LogRange], None]
    ) -> None:
        self._config = config
        self._disk = disk
        self._log = commit_log
        self._on_deleted = on_deleted
        self._manual_passes = 0
        self._keep_from: Callable[[], int | None] = lambda: None
        self.pause: Callable[[float], None] = time.sleep
        self._warned_full = False

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config

    def keep_from(self, position: Callable[[], int | None]) -> None:
        self._keep_from = position

    @property
    def kept_from(self) -> int | None:
        return self._keep_from()

    def request(self) -> None:
        """Delete expired files soon, whatever the hour."""
        self._manual_passes = MANUAL_PASSES

    def disk_state(self) -> DiskState:
        paths = {str(path): path for path in (self._config.log_dir, self._config.root)}
        state = judge_disk(self._config, {name: self._disk.usage(path).used_ratio for name, path in paths.items()})
        if (state.refuse is not None) != self._warned_full:
            self._warned_full = state.refuse is not None
            log.error("%s", state.refuse) if state.refuse else log.info("the disk has room again: writes are accepted")
        return state

    def run_once(self, now_ms: int, disk: DiskState) -> list[LogRange]:
        """Delete what may and should go now, oldest first; the ranges of the log that went. A full disk is looked at
        again after every file: no more goes than must."""
        at_hour = datetime.fromtimestamp(now_ms / 1000).hour in self._config.delete_hours
        if not (at_hour or disk.above_limit or self._manual_passes > 0):
            return []
        self._manual_passes = max(self._manual_passes - 1, 0)
        force = disk.clean_now and self._config.force_clean_enabled
        deleted: list[LogRange] = []
        while len(deleted) < FILES_PER_PASS_MAX and self._first_may_go(now_ms, force=force):
            if deleted:
                self.pause(self._config.delete_pause_ms / 1000)
            gone = self._log.delete_first()
            deleted.append(gone)
            log.warning("retention: log range [%d, %d) was deleted (%s); groups left behind go on at the new minimum",
                        gone.start, gone.end, "the disk is filling up" if force else "it expired")  # fmt: skip
            self._on_deleted(gone)
            force = force and self.disk_state().clean_now
        return deleted

    def _first_may_go(self, now_ms: int, *, force: bool) -> bool:
        files = self._log.files
        first, keep_from = files.first, self.kept_from
        if first is None or not self._log.is_finished(first):
            return False
        if first + self._config.segment_bytes > self._log.positions.flushed:
            return False
        if keep_from is not None and first + self._config.segment_bytes > keep_from:
            return False
        modified_ms = files.path_of(first).stat().st_mtime_ns // 1_000_000
        return force or expired(self._config, modified_ms, now_ms)
