"""What a batch read reads: from options, filters and what brokers hold to the slices of its tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rocketq.protocol.flags import ExpressionType
from rocketq.spark.catalog import Bounds, Catalog
from rocketq.spark.errors import DataLossError, SparkError
from rocketq.spark.offsets import QueueKey
from rocketq.spark.options import SourceOptions, Subscription
from rocketq.spark.planner import QueueSlice, ending_offsets, plan, require_named_queues, starting_offsets
from rocketq.spark.pushdown import EVERYWHERE, KEYS_MAX, Narrowing

Slices = tuple[QueueSlice, ...]
"""Of one task."""


def plan_batch(options: SourceOptions, narrowing: Narrowing = EVERYWHERE) -> list[Slices]:
    if frozenset() in (narrowing.tags, narrowing.keys):
        return []
    catalog = Catalog(options.connection, options.fetching)
    try:
        return _plan(options, narrowing, catalog)
    finally:
        catalog.close()


def _plan(options: SourceOptions, narrowing: Narrowing, catalog: Catalog) -> list[Slices]:
    everything = catalog.queues(options.subscription)
    require_named_queues(options, everything)
    queues = [queue for queue in everything if narrowing.has(queue)]
    bounds = catalog.bounds(queues)
    require_assigned(options.subscription, queues, bounds)
    if options.fetching.expression_type == ExpressionType.SQL92:
        catalog.require_sql(queues)
    start = starting_offsets(options, queues, bounds, catalog)
    if options.fail_on_data_loss:
        require_reached(start, bounds)
    end = ending_offsets(options, queues, bounds, catalog)
    low, high = _narrowed(start, end, bounds, narrowing, catalog)
    made = plan(low, high, bounds, rows_max=options.slice_rows_max, slices_min=options.slices_min)
    if made.lost and options.fail_on_data_loss:
        raise DataLossError(f"messages no longer exist: {made.describe_loss()}; option failOnDataLoss=false skips them")
    if narrowing.keys is not None and len(narrowing.keys) <= KEYS_MAX:
        return _through_index(made.slices, narrowing.keys, catalog)
    return [(part,) for part in made.slices]


def require_reached(start: Mapping[QueueKey, int], bounds: Bounds) -> None:
    """A queue that ends before the start offset was recreated, or the offset is wrong: an error, not an empty read."""
    for queue, at in sorted(start.items()):
        if queue in bounds and at > bounds[queue][1]:
            raise DataLossError(
                f"{queue} ends at offset {bounds[queue][1]}, reading was to begin at {at}; "
                "option failOnDataLoss=false takes it for read"
            )


def require_assigned(subscription: Subscription, queues: Iterable[QueueKey], bounds: Bounds) -> None:
    """A queue that was named must be there."""
    for queue in queues if subscription.assigned is not None else ():
        if queue not in bounds:
            raise SparkError(f"option assign names {queue}, which is not there")


def _narrowed(
    start: Mapping[QueueKey, int],
    end: Mapping[QueueKey, int],
    bounds: Bounds,
    narrowing: Narrowing,
    catalog: Catalog,
) -> tuple[dict[QueueKey, int], dict[QueueKey, int]]:
    low, high = {}, {}
    for queue in end:
        at, until = narrowing.within(start[queue], end[queue])
        held = bounds.get(queue, (0, 0))
        if narrowing.stored_from_ms is not None and at < until:
            at = max(at, catalog.offset_at(queue, narrowing.stored_from_ms, held))
        if narrowing.stored_before_ms is not None and at < until:
            until = min(until, catalog.offset_at(queue, narrowing.stored_before_ms, held))
        low[queue], high[queue] = at, max(at, until)
    return low, high


def _through_index(slices: Sequence[QueueSlice], keys: frozenset[str], catalog: Catalog) -> list[Slices]:
    """Only the messages in the index, a task for each broker; all slices of a broker without a usable index."""
    by_broker: dict[tuple[str, str], list[QueueSlice]] = {}
    for part in slices:
        by_broker.setdefault((part.queue.topic, part.queue.broker_name), []).append(part)
    planned: list[Slices] = []
    for (topic, broker_name), own in by_broker.items():
        ends = {part.queue: part.high for part in own}
        found = catalog.searches.by_keys(topic, broker_name, keys, ends)
        if found is None:
            planned += [(part,) for part in own]
        elif places := tuple(_at_offsets(own, found)):
            planned.append(places)
    return planned


def _at_offsets(slices: Iterable[QueueSlice], found: Mapping[QueueKey, Sequence[int]]) -> Iterable[QueueSlice]:
    for part in slices:
        for offset in found.get(part.queue, ()):
            if part.low <= offset < part.high:
                yield QueueSlice(part.queue, offset, offset + 1)
