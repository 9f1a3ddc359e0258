"""Who campaigns first when there is no master. The transaction decides; this only avoids useless races."""

from __future__ import annotations

from typing import Final

from rocketq.replication.control import GroupView

FIRST_MS: Final = 300
"""For the reports of the others to arrive."""
NEXT_MS: Final = 1_000


def campaign_delay_ms(view: GroupView, own_id: int, last_epoch: int, log_end: int) -> int | None:
    """How long after the loss of the master this replica asks to be elected; None: it may not be."""
    state = view.state.value if view.state else None
    if state is not None and own_id not in state.in_sync:
        return None
    if state is not None and state.preferred_id == own_id:
        return 0
    others = {
        broker_id: report.value
        for broker_id, report in view.alive.items()
        if broker_id != own_id and (state is None or broker_id in state.in_sync)
    }
    own_rank = (-last_epoch, -log_end, own_id)
    better = sum((-other.last_epoch, -other.log_end, broker_id) < own_rank for broker_id, other in others.items())
    preferred_alive = state is not None and state.preferred_id in others
    return FIRST_MS + NEXT_MS * min(better + preferred_alive, 2)
