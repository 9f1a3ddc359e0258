"""Consumer lag of one queue: the one rule that brokers, metrics, the admin API, the CLI and the console share.

Lag is never 0 when it is unknown. It is unknown when

* the queue's broker did not answer (`BROKER_UNREACHABLE`),
* the group never committed an offset of a queue that holds messages (`NEVER_COMMITTED`): where the group starts
  depends on its members,
* retention deleted the message at the committed offset (`OFFSET_DELETED`), while later ones are still stored,
* the committed offset is behind the end of the queue (`OFFSET_AHEAD`), for example after an unclean failover.

An empty queue has lag 0, committed or not.
"""

from __future__ import annotations

import enum
from typing import NamedTuple


class UnknownLag(enum.Enum):
    """Why a lag is unknown; the values are label values of metrics and appear in JSON."""

    NEVER_COMMITTED = "never_committed"
    OFFSET_DELETED = "offset_deleted"
    OFFSET_AHEAD = "offset_ahead"
    BROKER_UNREACHABLE = "broker_unreachable"


class Lag(NamedTuple):
    """Messages stored and not committed; None with a reason when that is unknown."""

    messages: int | None
    reason: UnknownLag | None = None


EMPTY = Lag(0)


def queue_lag(committed: int | None, min_offset: int | None, max_offset: int | None) -> Lag:
    """`committed` is the next offset to consume (None: never committed), `max_offset` the next to be stored (None: the
    broker did not answer), `min_offset` the first that is stored (None: not known, so deletion is not detected)."""
    if max_offset is None:
        return Lag(None, UnknownLag.BROKER_UNREACHABLE)
    if max_offset <= 0 or min_offset == max_offset:
        return EMPTY
    if committed is None:
        return Lag(None, UnknownLag.NEVER_COMMITTED)
    if committed > max_offset:
        return Lag(None, UnknownLag.OFFSET_AHEAD)
    if min_offset is not None and committed < min_offset:
        return Lag(None, UnknownLag.OFFSET_DELETED)
    return Lag(max_offset - committed)
