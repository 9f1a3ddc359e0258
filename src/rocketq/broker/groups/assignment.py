"""Which queues of a topic a consumer gets, when it asks the broker instead of working it out itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rocketq.protocol.bodies.queues import MessageQueue

Strategy = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]
"""Sorted queues, the consumer's place among the sorted consumers, how many consumers there are."""


def allocate(
    strategy: str | None, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
) -> tuple[MessageQueue, ...] | None:
    """The consumer's queues; None for a strategy we do not know, or a consumer that is not one of the group."""
    rule = STRATEGIES.get(strategy or "AVG")
    if rule is None:
        return None
    clients = sorted(client_ids)
    if client_id not in clients:
        return None
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return tuple(rule(ordered, clients.index(client_id), len(clients)))


def _average(queues: Sequence[MessageQueue], place: int, count: int) -> list[MessageQueue]:
    """Neighbouring queues; the first consumers get one more where they do not come out even."""
    share, rest = divmod(len(queues), count)
    start = place * share + min(place, rest)
    return list(queues[start : start + share + (1 if place < rest else 0)])


def _circle(queues: Sequence[MessageQueue], place: int, count: int) -> list[MessageQueue]:
    """Dealt out like cards."""
    return list(queues[place::count])


STRATEGIES: dict[str, Strategy] = {"AVG": _average, "AVG_BY_CIRCLE": _circle}
