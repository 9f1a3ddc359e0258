"""SQL92 conditions of subscriptions by group and topic: compiled when a heartbeat brings them, kept for a day after the
group's last member left. Pure: time comes in as an argument."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rocketq.filter import BadExpressionError, BloomGeometry, compile_sql
from rocketq.kernel.filter_program import FilterProgram
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.groups import BloomPositions, ConsumerFilterTable, KeptFilter, TopicFilters
from rocketq.protocol.flags import ExpressionType

log = logging.getLogger(__name__)

FILTERS_PER_GROUP_MAX = 256
RETURN_MS = 30_000
"""Filters loaded at a start count as unused since 30 s before it, until their group returns."""


@dataclass(slots=True)
class ConsumerFilter:
    """A group's condition for a topic; `born_ms` is when this expression was first registered."""

    group: str
    topic: str
    expression: str
    expression_type: str
    version: int
    born_ms: int
    positions: tuple[int, ...]
    program: FilterProgram
    dead_ms: int = 0
    mask: int = field(init=False)
    """Its positions as bits."""

    def __post_init__(self) -> None:
        self.mask = sum(1 << position for position in set(self.positions))

    @property
    def is_dead(self) -> bool:
        return self.dead_ms >= self.born_ms


class ConsumerFilters:
    def __init__(self, geometry: BloomGeometry) -> None:
        self._geometry = geometry
        self._groups: dict[str, dict[str, ConsumerFilter]] = {}
        self._by_topic: dict[str, tuple[ConsumerFilter, ...]] = {}
        self._newest_ms = 0
        self.changes = 0

    def get(self, group: str, topic: str) -> ConsumerFilter | None:
        return self._groups.get(group, {}).get(topic)

    def register(self, group: str, subscriptions: Iterable[Subscription], now_ms: int) -> None:
        """Register a group's subscriptions; its conditions for other topics become unused."""
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        for subscription in wanted.values():
            if subscription.expression_type == ExpressionType.SQL92 and subscription.expression:
                self._register(group, subscription, now_ms)
        for topic, known in self._groups.get(group, {}).items():
            if topic not in wanted:
                self._bury(known, now_ms)

    def unregister(self, group: str, now_ms: int) -> None:
        """Mark the conditions of a group without members as unused."""
        for known in self._groups.get(group, {}).values():
            self._bury(known, now_ms)

    def clean(self, now_ms: int, keep_ms: int) -> None:
        """Remove conditions unused for `keep_ms`."""
        for group, filters in list(self._groups.items()):
            gone = [each for each in filters.values() if each.is_dead and now_ms - each.dead_ms >= keep_ms]
            for each in gone:
                del filters[each.topic]
                self._judge_no_more(each)
                self.changes += 1
            if not filters:
                del self._groups[group]

    def _register(self, group: str, subscription: Subscription, now_ms: int) -> None:
        known = self.get(group, subscription.topic)
        if known is not None and subscription.version < known.version:
            return
        if known is not None and (subscription.version == known.version or subscription.expression == known.expression):
            if known.is_dead or known.version != subscription.version:
                known.dead_ms, known.version = 0, subscription.version
                self.changes += 1
            return
        if known is None and not self._has_room(group):
            log.warning("group %s has too many SQL92 conditions: that for %s is not used", group, subscription.topic)
            return
        made = self._make(group, subscription, now_ms)
        self.changes += made is not None or known is not None
        if made is not None:
            self._judge(made)
            # Bitmaps up to the newest message lack its bits, even if the clock was set back.
            made.born_ms = max(now_ms, self._newest_ms)
            self._groups.setdefault(group, {})[subscription.topic] = made
        elif known is not None:  # pulls with the new, invalid expression must fail, not use the old one
            self._judge_no_more(known)
            del self._groups[group][subscription.topic]

    def _has_room(self, group: str) -> bool:
        """Make room for a condition by dropping the group's unused ones."""
        filters = self._groups.get(group, {})
        if len(filters) < FILTERS_PER_GROUP_MAX:
            return True
        for unused in [each for each in filters.values() if each.is_dead]:
            del filters[unused.topic]
            self._judge_no_more(unused)
            self.changes += 1
        return len(filters) < FILTERS_PER_GROUP_MAX

    def _make(self, group: str, subscription: Subscription, now_ms: int) -> ConsumerFilter | None:
        topic, expression = subscription.topic, subscription.expression
        try:
            program = compile_sql(expression)
        except BadExpressionError as error:
            log.warning("group %s subscribes to %s with a bad expression: %s", group, topic, error)
            return None
        return ConsumerFilter(
            group=group,
            topic=topic,
            expression=expression,
            expression_type=subscription.expression_type,
            version=subscription.version,
            born_ms=now_ms,
            positions=self._geometry.positions(group, topic),
            program=program,
        )

    def _bury(self, known: ConsumerFilter, now_ms: int) -> None:
        if not known.is_dead:
            known.dead_ms = max(now_ms, known.born_ms)
            self.changes += 1

    # bitmaps

    def bitmap(self, topic: str, properties: bytes, store_ms: int) -> bytes:
        """The bits of all groups whose condition a message meets, unused conditions included; empty without conditions.
        Called for one message at a time, possibly while another thread registers."""
        self._newest_ms = max(self._newest_ms, store_ms)  # before the conditions are read
        filters = self._by_topic.get(topic)
        if filters is None:
            return b""
        return self._geometry.bitmap(each.positions for each in filters if each.program.matches(properties))

    def may_match(self, known: ConsumerFilter, bitmap: bytes, store_ms: int) -> bool:
        """False if a stored message's bitmap excludes a condition. Conditions newer than the message are never
        excluded."""
        if store_ms <= known.born_ms or len(bitmap) * 8 != self._geometry.bits:
            return True
        return int.from_bytes(bitmap, "little") & known.mask == known.mask

    def distrust_until(self, store_ms: int) -> None:
        """Ignore bitmaps of messages up to this time: they were stored before any group registered."""
        self._newest_ms = max(self._newest_ms, store_ms)

    def _judge(self, made: ConsumerFilter) -> None:
        others = (each for each in self._by_topic.get(made.topic, ()) if each.group != made.group)
        self._by_topic[made.topic] = (*others, made)

    def _judge_no_more(self, gone: ConsumerFilter) -> None:
        left = tuple(each for each in self._by_topic.get(gone.topic, ()) if each is not gone)
        if left:
            self._by_topic[gone.topic] = left
        else:
            self._by_topic.pop(gone.topic, None)

    # on disk

    def load(self, table: ConsumerFilterTable, now_ms: int) -> None:
        """Load saved conditions, unless they were made for another bitmap geometry."""
        kept = [each for topic in table.topics.values() for each in topic.groups.values()]
        if any(not self._fits(each.bloom) for each in kept):
            log.warning("consumerFilter.json ignored: it was made for another bloom filter geometry")
            return
        for each in kept:
            subscription = Subscription(
                topic=each.topic,
                expression=each.expression,
                expression_type=each.expression_type,
                version=each.version,
            )
            made = self._make(each.group, subscription, each.born_ms)
            if made is not None:
                made.dead_ms = each.dead_ms or max(each.born_ms, now_ms - RETURN_MS)
                self._groups.setdefault(each.group, {})[each.topic] = made
                self._judge(made)

    def _fits(self, bloom: BloomPositions | None) -> bool:
        geometry = self._geometry
        return bloom is not None and (bloom.bits, len(bloom.positions)) == (geometry.bits, geometry.hashes)

    def snapshot(self) -> ConsumerFilterTable:
        return table_of(self.each_kept())

    def each_kept(self) -> Iterator[KeptFilter]:
        """All conditions, each as of the moment it is read; groups added later are left out."""
        for filters in list(self._groups.values()):
            for each in list(filters.values()):
                yield self._kept(each)

    def kept(self, group: str, topic: str) -> KeptFilter | None:
        known = self.get(group, topic)
        return None if known is None else self._kept(known)

    def _kept(self, each: ConsumerFilter) -> KeptFilter:
        return KeptFilter(
            topic=each.topic,
            group=each.group,
            expression=each.expression,
            expression_type=each.expression_type,
            version=each.version,
            born_ms=each.born_ms,
            dead_ms=each.dead_ms,
            dead=each.is_dead,
            bloom=BloomPositions(bits=self._geometry.bits, positions=each.positions),
        )


def table_of(kept: Iterable[KeptFilter]) -> ConsumerFilterTable:
    by_topic: dict[str, dict[str, KeptFilter]] = {}
    for each in kept:
        by_topic.setdefault(each.topic, {})[each.group] = each
    return ConsumerFilterTable(
        topics={topic: TopicFilters(topic=topic, groups=groups) for topic, groups in by_topic.items()}
    )
