"""Failover under seeded schedules of crashes, power cuts, pauses, cuts of the network and of the control store.

ROCKETQ_SEED=n replays one schedule, with its trace; ROCKETQ_SCHEDULES=n runs so many (make chaos: 10,000).
"""

from __future__ import annotations

import os

import pytest

from .kernel_forms import COMPILED_IS_TESTED_TOO
from .replica_schedule import run_schedule

CHUNKS = 20
SCHEDULES = int(os.environ.get("ROCKETQ_SCHEDULES", "100" if COMPILED_IS_TESTED_TOO else "1000"))
"""No kernel is used here: the whole number is run once, with the compiled form where there is one."""


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_schedule_loses_what_was_acknowledged_or_seen(chunk: int) -> None:
    """Goal: whatever the order of faults: nothing told is lost or changed, one master per epoch, equal logs at rest."""
    elections = acknowledged = 0
    for seed in range(chunk, SCHEDULES, CHUNKS):
        history = run_schedule(seed)
        elections += history.elections
        acknowledged += len(history.acked)
    runs = len(range(chunk, SCHEDULES, CHUNKS))
    assert elections > runs, "schedules without failovers prove nothing"
    assert acknowledged > 50 * runs


@pytest.mark.skipif("ROCKETQ_SEED" not in os.environ, reason="ROCKETQ_SEED names the schedule to replay")
def test_replay_of_one_seed() -> None:
    """Goal: a failing seed can be looked at."""
    history = run_schedule(int(os.environ["ROCKETQ_SEED"]))
    print("\n".join(history.trace))
    print(f"{history.elections} elections, {len(history.acked)} acknowledged, {history.unknown_count} unknown, "
          f"{history.refused_count} refused, {history.cuts} cuts of {history.cut_bytes} bytes")  # fmt: skip


def test_a_schedule_follows_from_its_seed_alone() -> None:
    """Goal: a seed that fails once fails again."""
    one, other = run_schedule(7), run_schedule(7)
    assert one.trace == other.trace
    assert one.truth == other.truth
    assert one.acked == other.acked
