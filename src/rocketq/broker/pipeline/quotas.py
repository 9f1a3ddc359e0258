"""Quotas: limits of messages and bytes per second by topic, group or principal, for sending and receiving together.

    rules := rule (";" rule)*
    rule  := ("topic" | "group" | "principal") "/" (name | "*") ":" limit ("," limit)*
    limit := number ("msg/s" | "B/s" | "KiB/s" | "MiB/s")

    topic/Orders: 5000 msg/s, 10 MiB/s; group/*: 20000 msg/s; principal/import: 1 MiB/s

A rule for a name replaces the one for `*`. Each name has token buckets, shared by all its connections, which hold the
tokens of one second. A request passes if there is a token; the tokens it takes beyond that delay later requests. Under
`*` the buckets of the most recent names are kept; names count by their first 255 characters.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rocketq.errors import ConfigError
from rocketq.kernel.admission import TokenBucket
from rocketq.protocol.names import GROUP_CHARS_MAX

if TYPE_CHECKING:
    from rocketq.broker.config import BrokerConfig

KINDS: Final = ("topic", "group", "principal")
_RULE: Final = re.compile(r"\s*(\w+)/([^\s:;]+)\s*:(.+)", re.DOTALL)
_LIMIT: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(msg/s|B/s|KiB/s|MiB/s)\s*")
_UNITS: Final = {
    "msg/s": ("messages", 1),
    "B/s": ("bytes", 1),
    "KiB/s": ("bytes", 1 << 10),
    "MiB/s": ("bytes", 1 << 20),
}
_LOWEST: Final = {"messages": 0.1, "bytes": 1.0}
_NAMES_MAX: Final = 100_000  # with a rule for `*` clients choose the number of names and their length


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """Limits of a name, or of each name without a rule (`*`)."""

    kind: str
    name: str
    messages_per_s: float | None = None
    bytes_per_s: float | None = None


def parse_quotas(text: str) -> tuple[QuotaRule, ...]:
    """Parse the setting; ConfigError names the invalid part and what is allowed."""
    rules = tuple(_parse_rule(part) for part in text.split(";") if part.strip())
    seen = set()
    for rule in rules:
        if (rule.kind, rule.name) in seen:
            raise ConfigError(f"quotas: {rule.kind}/{rule.name} has two rules, join them with a comma")
        seen.add((rule.kind, rule.name))
    return rules


def _parse_rule(text: str) -> QuotaRule:
    found = _RULE.fullmatch(text)
    if found is None or found[1] not in KINDS:
        raise ConfigError(
            f'quotas: "{text.strip()}" is invalid: write topic, group or principal, a slash and a name or *, a colon '
            "and limits, such as topic/Orders: 5000 msg/s, 10 MiB/s"
        )
    limits: dict[str, float] = {}
    for part in found[3].split(","):
        limit = _LIMIT.fullmatch(part)
        if limit is None or float(limit[1]) <= 0:
            raise ConfigError(
                f'quotas: limit "{part.strip()}" of {found[1]}/{found[2]} is invalid: write a number above 0 and '
                "msg/s, B/s, KiB/s or MiB/s"
            )
        unit, factor = _UNITS[limit[2]]
        if float(limit[1]) * factor < _LOWEST[unit]:
            raise ConfigError(
                f'quotas: limit "{part.strip()}" of {found[1]}/{found[2]} is too small: {_LOWEST[unit]:g} {unit}/s or '
                "more is allowed, because a message that exceeds a bucket blocks its name until the debt is paid"
            )
        if unit in limits:
            raise ConfigError(f"quotas: {found[1]}/{found[2]} limits {unit} twice")
        limits[unit] = float(limit[1]) * factor
    return QuotaRule(found[1], found[2], limits.get("messages"), limits.get("bytes"))


class Quotas:
    """Token buckets by name, made on first use. A change of the rules must bump the generation."""

    def __init__(self, rules: tuple[QuotaRule, ...] = ()) -> None:
        self._rules: Mapping[tuple[str, str], QuotaRule] = {}
        self._buckets: dict[tuple[str, str], tuple[TokenBucket, ...]] = {}
        self._others: OrderedDict[tuple[str, str], tuple[TokenBucket, ...]] = OrderedDict()
        self.replace(rules)

    def replace(self, rules: tuple[QuotaRule, ...]) -> None:
        """Replace the rules; all buckets start full."""
        self._rules = {(rule.kind, rule.name): rule for rule in rules}
        self._buckets = {(rule.kind, rule.name): tuple(_make_buckets(rule, rule.name)) for rule in rules}
        self._others.clear()

    def follow(self, before: BrokerConfig, after: BrokerConfig) -> None:
        """Apply changed settings."""
        if before.quotas != after.quotas:
            self.replace(parse_quotas(after.quotas))

    def buckets(self, topic: str, group: str, principal: str | None) -> tuple[TokenBucket, ...]:
        """The buckets that a request takes from."""
        if not self._rules:
            return ()
        names = (("topic", topic), ("group", group), ("principal", principal or ""))
        return tuple(bucket for kind, name in names if name for bucket in self._of(kind, name))

    def _of(self, kind: str, name: str) -> tuple[TokenBucket, ...]:
        own = self._buckets.get((kind, name))
        if own is not None:
            return own
        rule = self._rules.get((kind, "*"))
        if rule is None:
            return ()
        key = kind, name[:GROUP_CHARS_MAX]
        found = self._others.get(key)
        if found is None:
            if len(self._others) >= _NAMES_MAX:
                self._others.popitem(last=False)
            found = self._others[key] = tuple(_make_buckets(rule, key[1]))
        else:
            self._others.move_to_end(key)
        return found


def _make_buckets(rule: QuotaRule, name: str) -> Iterator[TokenBucket]:
    for unit, rate in (("messages", rule.messages_per_s), ("bytes", rule.bytes_per_s)):
        if rate is not None:
            yield TokenBucket(f"{rule.kind} {name}", unit, rate)


def charge(buckets: tuple[TokenBucket, ...], count: int, size_bytes: int) -> None:
    """Take the tokens of an executed request."""
    for bucket in buckets:
        bucket.take(count if bucket.unit == "messages" else size_bytes)


def quota_fault(buckets: tuple[TokenBucket, ...], now_ms: int) -> str | None:
    """The exceeded quota with its limit and the rate of the last second, or None."""
    for bucket in buckets:
        if not bucket.has_tokens(now_ms):
            return (
                f"[QUOTA]over quota of {bucket.name}: {bucket.rate:.15g} {bucket.unit}/s allowed, "
                f"{bucket.rate_now(now_ms):.0f} {bucket.unit}/s in the last second; retry later"
            )
    return None
