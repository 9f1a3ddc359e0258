"""What a source is asked for, read from Spark's options: every key and value checked, each fault in one line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, TypeVar

from rocketq.protocol.acl import Credentials
from rocketq.protocol.flags import ExpressionType
from rocketq.protocol.names import group_fault
from rocketq.remoting.tls import ClientTls
from rocketq.spark.errors import OptionError
from rocketq.spark.offsets import EARLIEST, LATEST, Offsets, parse_assignment

_Value = TypeVar("_Value")

SPARKS_OWN: Final = frozenset({"path", "paths", "queryname"})
"""What Spark puts among the options: where load() and save() point to, and the name of a query."""
NAME_SERVER_KEYS: Final = ("rocketmq.nameserver.address", "nameServer")


class Mark(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first message stored at or after this time."""

    ms: int


Position = Mark | AtTime | Offsets
"""A start or end position; offsets may hold EARLIEST and LATEST, or be times by queue (`times_of`)."""


@dataclass(frozen=True, slots=True)
class TimesByQueue:
    times_ms: Offsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How brokers are reached. Keys and passwords are in no text made of it."""

    name_servers: str
    credentials: Credentials | None = field(default=None, repr=False)
    tls: ClientTls | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Exactly one of these."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, Mapping[str, list[int]]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    group: str
    expression: str = "*"
    expression_type: str = ExpressionType.TAG
    count_max: int = 8_192
    bytes_max: int = 4 << 20
    depth: int = 3
    timeout_ms: int = 10_000
    retries: int = 5
    retry_ms: int = 1_000
    in_place: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of one micro-batch."""

    rows_max: int | None = None
    bytes_max: int | None = None
    rows_min: int | None = None
    delay_max_ms: int = 900_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    connection: Connection
    subscription: Subscription
    fetching: Fetching
    starting: Position | TimesByQueue
    ending: Position | TimesByQueue
    no_match_is_latest: bool = False
    fail_on_data_loss: bool = True
    slices_min: int | None = None
    slice_rows_max: int | None = None
    limits: Limits = Limits()
    include_properties: bool = False
    user_properties_only: bool = False
    commit_each_batch: bool = False
    commit_group: str | None = None
    filter_pushdown: str = "auto"


class Options:
    """Spark's options: keys in any case, values are texts."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {key.lower(): value for key, value in given.items()}
        self._asked: dict[str, str] = {}

    def text(self, *names: str) -> str | None:
        """The value of the first of these names (they are aliases), None when it is missing or blank."""
        found = [name for name in names if (self._given.get(name.lower()) or "").strip()]
        self._asked.update({name.lower(): name for name in names})
        if len(found) > 1:
            raise OptionError(f"{' and '.join(found)} mean the same: give one of them")
        return self._given[found[0].lower()].strip() if found else None

    def required(self, *names: str) -> str:
        value = self.text(*names)
        if value is None:
            raise OptionError(f"option {names[0]} is missing")
        return value

    def parsed(self, name: str, parse: Callable[[str], _Value], what: str) -> _Value | None:
        value = self.text(name)
        if value is None:
            return None
        try:
            return parse(value)
        except OptionError as fault:
            raise OptionError(f"option {name}: {fault}") from None
        except ValueError:
            raise OptionError(f"option {name} must be {what}, not {value!r}") from None

    def count(self, name: str, *, at_least: int = 1) -> int | None:
        value = self.parsed(name, int, f"a number of {at_least} or more")
        if value is not None and value < at_least:
            raise OptionError(f"option {name} must be a number of {at_least} or more, not {value}")
        return value

    def time_ms(self, name: str) -> int | None:
        return self.parsed(name, _parse_time_ms, "a time in milliseconds since 1970, such as 1767225600000")

    def flag(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise OptionError(f"option {name} must be true or false, not {value!r}")
        return value.lower() == "true"

    def one_of(self, name: str, choices: tuple[str, ...]) -> str | None:
        """The value in lower case."""
        value = self.text(name)
        if value is None:
            return None
        if value.lower() not in [choice.lower() for choice in choices]:
            raise OptionError(f"option {name} must be one of {', '.join(choices)}, not {value!r}")
        return value.lower()

    @property
    def names(self) -> frozenset[str]:
        """All that were asked for, in lower case."""
        return frozenset(self._asked)

    def refuse_unknown(self) -> None:
        """Called after all options were read: a remaining one is unknown, and the error suggests the nearest name."""
        unknown = sorted(set(self._given) - set(self._asked) - SPARKS_OWN)
        if unknown:
            near = difflib.get_close_matches(unknown[0], self._asked, 1)
            hint = f"; did you mean {self._asked[near[0]]}?" if near else ""
            raise OptionError(f"option {unknown[0]} is unknown{hint}")


def parse_connection(options: Options) -> Connection:
    access, secret = options.text("rocketmq.accessKey"), options.text("rocketmq.secretKey")
    if (access is None) != (secret is None):
        raise OptionError("rocketmq.accessKey and rocketmq.secretKey go together")
    token = options.text("rocketmq.securityToken")
    if token is not None and access is None:
        raise OptionError("rocketmq.securityToken goes with rocketmq.accessKey and rocketmq.secretKey")
    credentials = None
    if access is not None and secret is not None:
        credentials = Credentials(access_key=access, secret_key=secret, security_token=token)
    name_servers = options.required(*NAME_SERVER_KEYS)
    return Connection(name_servers=name_servers, credentials=credentials, tls=_parse_tls(options))


def _parse_tls(options: Options) -> ClientTls | None:
    paths = {
        name: Path(value) if (value := options.text(f"rocketmq.tls.{key}")) else None
        for name, key in (("trust_path", "trustPath"), ("cert_path", "certPath"), ("key_path", "keyPath"))
    }
    password = options.text("rocketmq.tls.keyPassword")
    if paths["cert_path"] is None and (paths["key_path"] or password) is not None:
        raise OptionError("rocketmq.tls.keyPath and rocketmq.tls.keyPassword go with rocketmq.tls.certPath")
    verify_host = options.flag("rocketmq.tls.verifyHostname", default=True)
    if not options.flag("rocketmq.tls.enable", default=any(paths.values())):
        return None
    return ClientTls(
        trust_path=paths["trust_path"],
        cert_path=paths["cert_path"],
        key_path=paths["key_path"],
        key_password=password,
        verify_host=verify_host,
    )


def parse_source(given: Mapping[str, str] | Options, *, streaming: bool) -> SourceOptions:
    """All options of a read; OptionError names the missing, unknown or invalid one."""
    options = given if isinstance(given, Options) else Options(given)
    connection, subscription = parse_connection(options), _parse_subscription(options)
    group, prefix = options.text("rocketmq.group.id"), options.text("groupIdPrefix")
    if group is not None and prefix is not None:
        raise OptionError("options rocketmq.group.id and groupIdPrefix contradict each other: give one of them")
    for name in (group, prefix):
        if name is not None and (fault := group_fault(name)) is not None:
            raise OptionError(fault)
    fetching = _parse_fetching(options, group or f"{prefix or 'spark-rocketmq'}-reader")
    starting = _parse_position(options, "starting", Mark.LATEST if streaming else Mark.EARLIEST)
    ending = _parse_position(options, "ending", Mark.LATEST)
    properties = parse_properties(options)
    commit = options.one_of("commitOffsets", ("none", "batch")) or "none"
    if group is None and (commit == "batch" or starting is Mark.COMMITTED):
        raise OptionError("committed offsets are those of a group: option rocketmq.group.id is missing")
    parsed = SourceOptions(
        connection=connection,
        subscription=subscription,
        fetching=fetching,
        starting=starting,
        ending=ending,
        no_match_is_latest=options.one_of("startingOffsetsByTimestampStrategy", ("error", "latest")) == "latest",
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        slices_min=options.count("minPartitions"),
        slice_rows_max=options.count("maxRecordsPerPartition"),
        limits=_parse_limits(options),
        include_properties=properties != "false",
        user_properties_only=properties == "user",
        commit_each_batch=commit == "batch",
        commit_group=group,
        filter_pushdown=options.one_of("filterPushdown", ("auto", "always", "never")) or "auto",
    )
    _refuse_contradictions(options, parsed, streaming=streaming)
    options.refuse_unknown()
    return parsed


def parse_properties(options: Options) -> str:
    """Which of them the map has: those of the application only, without what RocketMQ itself puts there, are `user`."""
    return options.one_of("includeProperties", ("true", "false", "user")) or "false"


def _refuse_contradictions(options: Options, parsed: SourceOptions, *, streaming: bool) -> None:
    if options.text("path", "paths") is not None:
        raise OptionError("a path means nothing here: option subscribe names the topics")
    if isinstance(parsed.ending, Offsets) and EARLIEST in parsed.ending.values():
        raise OptionError("option endingOffsets cannot be -2 (earliest)")
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if options.text(name) is not None:
                raise OptionError(f"option {name} is for batch reads: a stream has no end")
        limits = parsed.limits
        if limits.rows_min is not None and limits.rows_max is not None and limits.rows_min > limits.rows_max:
            raise OptionError("option minOffsetsPerTrigger is more than maxOffsetsPerTrigger")
        return
    if isinstance(parsed.starting, Offsets) and LATEST in parsed.starting.values():
        raise OptionError("option startingOffsets with -1 (latest) is for streams: a batch read would find nothing")
    if parsed.starting is Mark.LATEST:
        raise OptionError("option startingOffsets=latest is for streams: a batch read would find nothing")
    _refuse_backwards(parsed.starting, parsed.ending)
    if parsed.ending in (Mark.EARLIEST, Mark.COMMITTED):
        raise OptionError(f"option endingOffsets cannot be {parsed.ending}")
    if parsed.limits != Limits():
        raise OptionError("options maxOffsetsPerTrigger, maxBytesPerTrigger and minOffsetsPerTrigger are for streams")
    if parsed.commit_each_batch:
        raise OptionError("option commitOffsets is for streams")


def _refuse_backwards(starting: Position | TimesByQueue, ending: Position | TimesByQueue) -> None:
    """An end before the start is a slip, and no read without rows."""
    if isinstance(starting, AtTime) and isinstance(ending, AtTime) and starting.ms > ending.ms:
        raise OptionError(f"option startingTimestamp={starting.ms} is later than endingTimestamp={ending.ms}")
    if not (isinstance(starting, Offsets) and isinstance(ending, Offsets)):
        return
    for queue, until in ending.items():
        if 0 <= until < starting.get(queue, 0):
            raise OptionError(f"{queue}: startingOffsets has {starting[queue]}, endingOffsets has {until}")


def _parse_subscription(options: Options) -> Subscription:
    topics, pattern = options.text("subscribe", "topic"), options.text("subscribePattern")
    assigned = options.text("assign")
    given = [each for each in (topics, pattern, assigned) if each is not None]
    if len(given) != 1:
        raise OptionError("give exactly one of the options subscribe, subscribePattern and assign")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option subscribePattern is no pattern: {error}") from None
        return Subscription(pattern=pattern)
    if topics is not None:
        names = tuple(dict.fromkeys(name.strip() for name in topics.split(",") if name.strip()))
        if not names:
            raise OptionError("option subscribe names no topic")
        return Subscription(topics=names)
    return Subscription(assigned=options.parsed("assign", parse_assignment, "JSON"))


def _parse_fetching(options: Options, group: str) -> Fetching:
    expression = options.text("subExpression") or "*"
    kind = options.one_of("subExpressionType", ("tag", "sql92"))
    if kind == "sql92":
        _check_sql(expression)
    elif kind is None and _CONDITION.search(expression):
        raise OptionError(
            f"option subExpression={expression!r} looks like a condition: option subExpressionType=sql92 says that it "
            "is one, tag that these are tags"
        )
    numbers = {
        "count_max": options.count("pullBatchSize"),
        "bytes_max": options.count("pullBatchBytes", at_least=1024),
        "depth": options.count("pullsInFlight"),
        "timeout_ms": options.count("pullTimeoutMs"),
        "retries": options.count("fetchOffset.numRetries", at_least=0),
        "retry_ms": options.count("fetchOffset.retryIntervalMs", at_least=0),
    }
    return Fetching(
        group=group,
        expression=expression,
        expression_type=ExpressionType.SQL92 if kind == "sql92" else ExpressionType.TAG,
        in_place=options.flag("readInPlace", default=True),
        **_without_none(numbers),
    )


_CONDITION: Final = re.compile(r"\s(<|>|=|AND|OR|IS|IN|BETWEEN)\s|[<>]=|<>", re.IGNORECASE)
"""Characters that tags rarely contain: a condition passed as tags would silently match nothing."""


def _check_sql(expression: str) -> None:
    """Checked here, before a broker rejects it in the middle of a task."""
    from rocketq.filter import BadExpressionError, compile_sql  # noqa: PLC0415 most need no parser

    if expression == "*":
        raise OptionError("option subExpressionType=sql92 needs a condition in option subExpression")
    try:
        compile_sql(expression)
    except BadExpressionError as error:
        raise OptionError(f"option subExpression: {error}") from None


def _without_none(numbers: Mapping[str, int | None]) -> dict[str, int]:
    """Those that are given; the others have their defaults."""
    return {name: value for name, value in numbers.items() if value is not None}


def _parse_limits(options: Options) -> Limits:
    numbers = {
        "rows_max": options.count("maxOffsetsPerTrigger"),
        "bytes_max": options.count("maxBytesPerTrigger"),
        "rows_min": options.count("minOffsetsPerTrigger"),
        "delay_max_ms": options.parsed("maxTriggerDelay", parse_duration_ms, "a duration such as 15m or 30s"),
    }
    return Limits(**_without_none(numbers))


_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)", text.strip().lower())
    if match is None:
        raise ValueError(text)
    return int(match[1]) * _UNITS_MS[match[2]]


def _parse_position(options: Options, side: str, default: Mark) -> Position | TimesByQueue:
    names = [f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp"]
    given = [name for name in names if options.text(name) is not None]
    if len(given) > 1:
        raise OptionError(f"options {' and '.join(given)} contradict each other: give one of them")
    if not given:
        return default
    if given[0] == names[1]:
        ms = options.time_ms(names[1])
        assert ms is not None
        return AtTime(ms)
    if given[0] == names[2]:
        times = options.parsed(names[2], Offsets.from_json, "JSON")
        assert times is not None
        return TimesByQueue(times)
    position = options.parsed(names[0], _parse_offsets, "earliest, latest, committed or JSON of offsets")
    assert position is not None
    return position


def _parse_time_ms(text: str) -> int:
    ms = int(text)
    if ms < 0:
        raise ValueError(text)
    return ms


def _parse_offsets(text: str) -> Mark | Offsets:
    if text.lower() in list(Mark):
        return Mark(text.lower())
    if not text.startswith("{"):
        raise ValueError(text)
    offsets = Offsets.from_json(text)
    for queue, value in offsets.items():
        if value < 0 and value not in (EARLIEST, LATEST):
            raise OptionError(f"{queue}: {value} is no offset (-2 is the earliest, -1 the latest)")
    return offsets


def read_options_file(path: Path | str) -> dict[str, str]:
    """The options; OptionError gives the number of an invalid line, not its content. Lines that start with # are
    skipped."""
    options = {}
    for number, line in enumerate(_lines(Path(path)), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        key, equals, value = line.partition("=")
        if not equals or not key.strip():
            raise OptionError(f"{path}: line {number} is not KEY=VALUE")
        options[key.strip()] = value.strip()
    return options


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise OptionError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise OptionError(f"{path} is no text") from None
