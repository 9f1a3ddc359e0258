"""What stands in the control store: read by replicas of other versions, too."""

from __future__ import annotations

import json

import pytest

from rocketq.errors import ProtocolError
from rocketq.replication.control import AliveReport, Entry, report_alive, view_of


def test_what_a_newer_replica_adds_is_left_alone() -> None:
    """Goal: an upgrade one by one: the older ones read the group on."""
    state = {"master_id": 1, "epoch": 3, "in_sync": [1, 2], "version": 4, "mood": "good"}
    alive = {"ha_addr": "x", "log_end": 5, "last_epoch": 3, "weather": [1]}
    view = view_of({"state": _entry(state), "alive/1": _entry(alive)}, 9)
    assert view.state is not None
    assert view.state.value.in_sync == {1, 2}
    assert view.alive[1].value == AliveReport("x", 5, 3)


def test_how_far_slaves_are_comes_back_as_it_was_told() -> None:
    """Goal: a report is the same value after the control store; one without slaves is, too."""
    for report in (AliveReport("x", 5, 3), AliveReport("x", 50, 3, ((2, 40, 1_500), (3, 50, 0)))):
        (put,) = report_alive(1, report, 7).puts
        assert view_of({put.key: Entry(put.value, 2)}, 9).alive[1].value == report


@pytest.mark.parametrize("value", [b"[]", b"{", b'{"ha_addr": "x", "log_end": 5, "last_epoch": 3, "slaves": [1]}'])
def test_nonsense_is_told(value: bytes) -> None:
    """Goal: one line, not a guess."""
    with pytest.raises(ProtocolError, match="AliveReport"):
        view_of({"alive/1": Entry(value, 2)}, 9)


def _entry(value: dict[str, object]) -> Entry:
    return Entry(json.dumps(value).encode(), 1)
