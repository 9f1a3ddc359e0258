"""What a read of store files is asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from rocketq.spark.commitlog_files import RANGE_BYTES, STORE_TIME_SLACK_MS
from rocketq.spark.errors import OptionError
from rocketq.spark.options import Options, parse_properties

RANGE_BYTES_MIN = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogOptions:
    paths: tuple[str, ...]
    broker_name: str | None = None
    range_bytes: int = RANGE_BYTES
    fail_fast: bool = False
    slack_ms: int = STORE_TIME_SLACK_MS
    ignore_missing: bool = False
    topics: frozenset[str] | None = None
    stored_from_ms: int | None = None
    stored_before_ms: int | None = None
    filter_pushdown: str = "auto"
    user_properties_only: bool = False


def parse_commitlog(given: Mapping[str, str]) -> CommitLogOptions:
    """All options; OptionError names the missing, unknown or invalid one."""
    options = Options(given)
    parsed = CommitLogOptions(
        paths=_paths(options),
        broker_name=options.text("brokerName"),
        range_bytes=options.count("maxPartitionBytes", at_least=RANGE_BYTES_MIN) or RANGE_BYTES,
        user_properties_only=parse_properties(options) == "user",
        fail_fast=options.one_of("mode", ("permissive", "failfast")) == "failfast",
        slack_ms=_or(options.count("storeTimeSlackMs", at_least=0), STORE_TIME_SLACK_MS),
        ignore_missing=options.flag("ignoreMissingFiles", default=False),
        topics=options.parsed("subscribe", _topics, "topics with commas between them"),
        stored_from_ms=options.time_ms("startingTimestamp"),
        stored_before_ms=options.time_ms("endingTimestamp"),
        filter_pushdown=options.one_of("filterPushdown", ("auto", "always", "never")) or "auto",
    )
    included(options)
    options.refuse_unknown()
    return parsed


def included(options: Options) -> tuple[bool, bool]:
    """Whether the columns properties and _corrupt are wanted by who gives no schema."""
    return parse_properties(options) != "false", options.flag("includeCorrupt", default=False)


def _paths(options: Options) -> tuple[str, ...]:
    several = options.parsed("paths", json.loads, "a list of paths")
    one = options.text("path")
    found = [*(several if isinstance(several, list) else []), *([one] if one else [])]
    if not found:
        raise OptionError("no path: give load() a store directory, its commitlog directory or files of it")
    return tuple(map(str, found))


def _topics(text: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
