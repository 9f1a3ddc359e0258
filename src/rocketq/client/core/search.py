"""Message search: what is looked for, in which queues, and how far the search has come."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from rocketq.client.core.stored_messages import StoredMessage
from rocketq.errors import ConfigError

_PATH = re.compile(r"\$?((?:\.[A-Za-z_][\w-]*|\[\d+\])+)\s*(=|!=|>=|<=|>|<|~)\s*(.*)", re.DOTALL)
_STEP = re.compile(r"\.([A-Za-z_][\w-]*)|\[(\d+)\]")
_BARE = re.compile(r"[A-Za-z_]")


class Direction(StrEnum):
    NEWEST = "newest"
    OLDEST = "oldest"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Messages of a topic. All given conditions must hold; times are store times, both ends included.

    `tag` is a tag expression that the broker checks; everything else is checked by the client. `queues` are texts like
    `broker-a:3`. `cursor` continues an earlier search of the same query.
    """

    topic: str
    direction: Direction = Direction.NEWEST
    since_ms: int | None = None
    until_ms: int | None = None
    tag: str = "*"
    key: str | None = None
    text: str | None = None
    json_path: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    queues: tuple[str, ...] = ()
    from_offset: int | None = None
    cursor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """How far a search has come. `total`: offsets in the range. `seen_ms`: the store time last looked at."""

    looked_at: int
    found: int
    total: int
    seen_ms: int | None
    done: bool
    cursor: str | None
    failed: Mapping[str, str] = field(default_factory=dict)


def matcher(query: SearchQuery) -> Callable[[StoredMessage], bool]:
    """Whether a message has what the broker was not asked to check; ConfigError for a bad JSON path."""
    checks: list[Callable[[StoredMessage], bool]] = []
    if query.key:
        key = query.key
        checks.append(lambda message: key in message.keys or key in (message.unique_key, message.offset_message_id))
    for name, value in query.properties.items():
        checks.append(lambda message, name=name, value=value: message.properties.get(name) == value)  # type: ignore[misc]
    if query.text:
        needle = query.text.encode()
        checks.append(lambda message: needle in message.body)
    if query.json_path:
        holds = json_condition(query.json_path)
        checks.append(lambda message: holds(message.body))
    since_ms, until_ms = query.since_ms, query.until_ms
    if since_ms is not None:
        checks.append(lambda message: message.store_ms >= since_ms)
    if until_ms is not None:
        checks.append(lambda message: message.store_ms <= until_ms)
    return lambda message: all(check(message) for check in checks)


def json_condition(text: str) -> Callable[[bytes], bool]:
    """`$.order.total > 100`, `state = "paid"`, `items[0].name ~ box`: a path, an operator and a JSON value or text."""
    stripped = text.strip()
    if _BARE.match(stripped):
        stripped = f".{stripped}"
    parts = _PATH.fullmatch(stripped)
    if parts is None:
        raise ConfigError(f"JSON condition {text[:80]!r} is not PATH OPERATOR VALUE, such as $.order.total > 100")
    steps = [name or int(index) for name, index in _STEP.findall(parts[1])]
    operator, wanted = parts[2], _value_of(parts[3].strip())

    def holds(body: bytes) -> bool:
        try:
            value = json.loads(body)
        except ValueError:
            return False
        for step in steps:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return False
        return _compare(value, operator, wanted)

    return holds


def _value_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _compare(value: Any, operator: str, wanted: Any) -> bool:
    if operator == "~":
        return str(wanted) in (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if operator in ("=", "!="):
        same = value == wanted or (isinstance(value, str) and value == str(wanted))
        return same == (operator == "=")
    try:
        match operator:
            case ">":
                return bool(value > wanted)
            case "<":
                return bool(value < wanted)
            case ">=":
                return bool(value >= wanted)
            case _:
                return bool(value <= wanted)
    except TypeError:
        return False


WINDOW: Final = 256


@dataclass(slots=True)
class QueueScan:
    """One queue of a search: `low` (included) to `high` (excluded) is still to be looked at.

    `found` are matching messages that were read and not handed out yet, in the direction of the search.
    """

    name: str
    low: int
    high: int
    found: list[StoredMessage] = field(default_factory=list)
    looked_at: int = 0
    failed: str | None = None
    edge_ms: int | None = None

    @property
    def is_read(self) -> bool:
        return self.low >= self.high or self.failed is not None

    def window(self, direction: Direction, size: int = WINDOW) -> tuple[int, int]:
        """The next offsets to read."""
        if direction is Direction.NEWEST:
            return max(self.low, self.high - size), self.high
        return self.low, min(self.high, self.low + size)

    def passed(
        self, direction: Direction, window: tuple[int, int], found: list[StoredMessage], edge_ms: int | None
    ) -> None:
        """The window was read."""
        low, high = window
        self.looked_at += high - low
        if direction is Direction.NEWEST:
            self.high = low
            found.reverse()
        else:
            self.low = high
        self.found += found
        if edge_ms is not None:
            self.edge_ms = edge_ms


def mergeable(scans: list[QueueScan], direction: Direction, count_max: int) -> list[StoredMessage]:
    """Messages that no queue can precede any more, in the order of the search; they leave their queues."""
    out: list[StoredMessage] = []
    while len(out) < count_max:
        waiting = [scan for scan in scans if scan.found]
        if not waiting or any(not scan.found and not scan.is_read for scan in scans):
            return out
        if direction is Direction.NEWEST:
            first = max(waiting, key=lambda scan: scan.found[0].store_ms)
        else:
            first = min(waiting, key=lambda scan: scan.found[0].store_ms)
        out.append(first.found.pop(0))
    return out


def encode_cursor(scans: list[QueueScan], direction: Direction) -> str:
    """Where to go on: messages that were read but not handed out are read again."""
    places = {}
    for scan in scans:
        low, high = scan.low, scan.high
        if scan.found:
            offset = scan.found[0].queue_offset
            low, high = (low, offset + 1) if direction is Direction.NEWEST else (offset, high)
        places[scan.name] = [low, high, scan.looked_at]
    return base64.urlsafe_b64encode(json.dumps(places, separators=(",", ":")).encode()).decode()


def decode_cursor(text: str) -> dict[str, tuple[int, int]]:
    """ConfigError for a text that is no cursor."""
    try:
        value = json.loads(base64.urlsafe_b64decode(text.encode()))
        return {str(name): (int(place[0]), int(place[1])) for name, place in value.items()}
    except (ValueError, TypeError, AttributeError, IndexError, KeyError):
        raise ConfigError("the cursor of the search is damaged: start the search again") from None
