"""When a master hands over without being asked: it is cut off from its slaves, or its disk is full. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from rocketq.replication.confirm import Term
from rocketq.replication.control import AliveReport, GroupView

QUIET_MS: Final = 2_000
"""A slave or a master that was not heard for so long counts as cut off; heartbeats come every second."""
STABLE_MS: Final = 5_000
"""A master hands over at the earliest this long after its election."""
FULL_MS: Final = 500
"""And when its disk was full for so long."""
GRACE_MS: Final = 3_000
"""The in-sync set does not shrink below what a handover needs before its cut off members could report."""


class HandOver(Enum):
    """Outcome of the RETIRE transaction. Once it is sent, another replica may become master."""

    NONE = 0
    ASKED = 1
    """Sent, and the outcome is unknown."""
    NOT_MADE = 2
    """Rejected because of a concurrent change; the next read shows which."""


def members_needed(term: Term) -> int:
    """Connected in-sync replicas without which a master should hand over."""
    return max(2, term.rules.min_in_sync)


def is_heard(term: Term, member: int, now_ms: int) -> bool:
    follower = term.followers.get(member)
    return follower is not None and follower.connected and now_ms - follower.acked_ms <= QUIET_MS


def isolation_target(view: GroupView, term: Term, now_ms: int) -> int | None:
    """The in-sync slave to hand over to, because this master hears too few slaves while they reach each other and the
    control store. None: stay."""
    others = term.in_sync - {term.broker_id}
    needed = members_needed(term)
    if now_ms - term.began_ms < STABLE_MS or 1 + sum(is_heard(term, each, now_ms) for each in others) >= needed:
        return None

    def can_lead(member: int, report: AliveReport) -> bool:
        reached = set(report.reaches) & set(view.alive) - {member, term.broker_id}
        return report.isolated_epoch == term.epoch and 1 + len(reached) >= needed

    return _longest(view, (each for each in others if each in view.alive and can_lead(each, view.alive[each].value)))


def room_target(view: GroupView, term: Term, now_ms: int) -> int | None:
    """The in-sync slave with disk space to hand over to."""
    others = term.in_sync - {term.broker_id}
    if now_ms - term.began_ms < STABLE_MS:
        return None
    return _longest(
        view,
        (
            each
            for each in others
            if each in view.alive and view.alive[each].value.has_room and is_heard(term, each, now_ms)
        ),
    )


def may_shrink(view: GroupView, term: Term, wanted: frozenset[int], now_ms: int) -> bool:
    """Whether to propose a smaller set. One that is too small for a handover waits for the reports of members that are
    alive, because afterwards they cannot be elected."""
    removed = term.in_sync - wanted
    if not removed or len(wanted) >= members_needed(term) or len(term.in_sync) <= members_needed(term):
        return True
    lost_ms = max((_lost_ms(term, each) for each in removed if each in view.alive), default=None)
    if lost_ms is None:
        return True
    can_hand_over_ms = term.began_ms + STABLE_MS  # a set that shrinks before would leave nobody to hand over to
    return now_ms - max(lost_ms + term.rules.gone_ms_max, can_hand_over_ms) > GRACE_MS


def _lost_ms(term: Term, member: int) -> int:
    follower = term.followers.get(member)
    if follower is None:
        return term.began_ms
    return follower.acked_ms if follower.connected else follower.gone_ms


def _longest(view: GroupView, members: Iterable[int]) -> int | None:
    return max(
        members,
        key=lambda each: (view.alive[each].value.last_epoch, view.alive[each].value.log_end, -each),
        default=None,
    )
