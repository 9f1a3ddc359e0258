"""Settings: Apache's keys, types, relations between values."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from pathlib import Path

import pytest

from rocketq.errors import ConfigError
from rocketq.store import FlushType, StoreConfig
from rocketq.store.config import DEFAULT_DELAY_LEVELS, parse_delay_levels

ROOT = Path("root")


def test_defaults_are_apaches() -> None:
    """Goal: a directory of an untouched Apache broker opens without a single setting."""
    config = StoreConfig(root=ROOT)
    assert config.segment_bytes == 1_073_741_824
    assert (config.queue_file_bytes, config.queue_file_units) == (6_000_000, 300_000)
    assert config.index_file_bytes == 420_000_040
    assert config.log_dir == ROOT / "commitlog"
    assert config.message_bytes_max == 4_194_304
    assert (config.memory_read_count_max, config.memory_read_bytes_max) == (32, 262_144)
    assert (config.disk_read_count_max, config.disk_read_bytes_max) == (8, 65_536)
    assert (config.reserved_hours, config.delete_hours) == (72, frozenset([4]))
    assert config.flush_type is FlushType.ASYNC_FLUSH


def test_apaches_keys_are_read_and_others_left_alone() -> None:
    """Goal: one broker.conf holds many modules' keys; the store takes its own, in their types."""
    config = StoreConfig.from_java(
        {
            "brokerName": "b",
            "mappedFileSizeCommitLog": "65536",
            "mappedFileSizeConsumeQueue": " 801 ",
            "maxMessageSize": "1000",
            "storePathCommitLog": "/elsewhere/log",
            "flushDiskType": "SYNC_FLUSH",
            "messageIndexEnable": "FALSE",
            "diskSpaceWarningLevelRatio": "0.95",
            "deleteWhen": "03;04",
            "messageDelayLevel": "1s 2m",
        },
        root=ROOT,
    )
    assert (config.segment_bytes, config.message_bytes_max) == (65_536, 1_000)
    assert config.queue_file_bytes == 820
    assert config.log_dir == Path("/elsewhere/log")
    assert config.flush_type is FlushType.SYNC_FLUSH
    assert config.index_enabled is False
    assert config.disk_refuse_ratio == 0.95
    assert config.delete_hours == {3, 4}
    assert config.delays_ms == [1_000, 120_000]


def test_given_values_win_over_the_files() -> None:
    """Goal: a flag on the command line beats the configuration file."""
    assert StoreConfig.from_java({"fileReservedTime": "48"}, root=ROOT, reserved_hours=1).reserved_hours == 1


def test_no_key_of_apaches_is_claimed_twice() -> None:
    """Goal: each Java key is declared once."""
    keys = [item.metadata["key"] for item in fields(StoreConfig) if "key" in item.metadata]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("key", "text", "complaint"),
    [
        ("mappedFileSizeCommitLog", "1 GiB", "mappedFileSizeCommitLog='1 GiB' is not a whole number"),
        ("messageIndexEnable", "yes", "messageIndexEnable"),
        ("flushDiskType", "LATER", "flushDiskType"),
        ("diskSpaceWarningLevelRatio", "much", "diskSpaceWarningLevelRatio"),
        ("mappedFileSizeCommitLog", "4095", "too small: 4096"),
        ("mappedFileSizeCommitLog", "4194305", "whole pages"),
        ("mappedFileSizeCommitLog", "4294967296", "too large"),
        ("mappedFileSizeConsumeQueue", "0", "at least one unit"),
        ("maxHashSlotNum", "0", "maxHashSlotNum"),
        ("maxIndexNum", "1", "maxIndexNum"),
        ("maxMessageSize", "0", "maxMessageSize"),
        ("maxMessageSize", "1073741824", "maxMessageSize"),
        ("diskSpaceWarningLevelRatio", "0.5", "disk ratios"),
        ("diskSpaceWarningLevelRatio", "1.1", "disk ratios"),
        ("deleteWhen", "24", "deleteWhen"),
        ("deleteWhen", "", "deleteWhen"),
        ("deleteWhen", "4;x", "deleteWhen"),
        ("messageDelayLevel", "1s 5", "'5' is not a number with s, m, h or d"),
        ("messageDelayLevel", "", "no levels"),
    ],
)
def test_wrong_value_is_refused_with_its_key(key: str, text: str, complaint: str) -> None:
    """Goal: a wrong setting stops the start with a line that names it."""
    with pytest.raises(ConfigError, match=complaint):
        StoreConfig.from_java({key: text}, root=ROOT)


def test_transient_buffer_excludes_synchronous_flush() -> None:
    """Goal: two settings that contradict each other are refused together."""
    with pytest.raises(ConfigError, match="transientStorePoolEnable"):
        StoreConfig(root=ROOT, transient_buffer=True, flush_type=FlushType.SYNC_FLUSH)


def test_configuration_does_not_change_under_its_users() -> None:
    """Goal: what was checked at construction stays checked."""
    with pytest.raises(FrozenInstanceError):
        StoreConfig(root=ROOT).segment_bytes = 1  # type: ignore[misc]


def test_delay_levels_are_milliseconds() -> None:
    """Goal: seconds, minutes, hours and days; the eighteen default levels."""
    levels = parse_delay_levels(DEFAULT_DELAY_LEVELS)
    assert len(levels) == 18
    assert (levels[0], levels[4], levels[17]) == (1_000, 60_000, 7_200_000)
    assert parse_delay_levels(" 1d ") == (86_400_000,)
