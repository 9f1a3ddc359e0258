"""Which slave has which state of the tables."""

from __future__ import annotations

from rocketq.replication.table_sharing import TableShares


def test_a_slave_gets_the_newest_state_one_after_the_other() -> None:
    """Goal: changes made while it is busy go together, and nothing is sent twice."""
    shares = TableShares()
    assert shares.next_for(2) == 1
    shares.sent(2, 1)
    shares.changed()
    shares.changed()
    assert shares.next_for(2) is None
    assert shares.stored(2, 1)
    assert shares.next_for(2) == 3
    shares.sent(2, 3)
    assert shares.stored(2, 3)
    assert shares.next_for(2) is None


def test_whoever_counts_or_follows_is_waited_for() -> None:
    """Goal: a member that is away is lacking, a slave that was never heard of is not."""
    shares = TableShares()
    shares.sent(2, 1)
    shares.stored(2, 1)
    assert shares.lacking(1, {2}) == frozenset()
    assert shares.lacking(1, {2, 3}) == {3}
    shares.changed()
    assert shares.lacking(2, ()) == {2}


def test_what_a_slave_has_on_disk_counts_while_it_is_away() -> None:
    """Goal: a lost connection makes nobody wait for a change that was shared before; it is sent all the same."""
    shares = TableShares()
    shares.sent(2, 1)
    shares.stored(2, 1)
    shares.disconnected(2)
    assert not shares.has_any(2)
    assert shares.lacking(1, {2}) == frozenset()
    assert shares.next_for(2) == 1


def test_a_state_that_was_not_sent_is_not_taken() -> None:
    """Goal: a confused slave does not speak for itself."""
    shares = TableShares()
    assert not shares.stored(2, 1)
    assert shares.lacking(1, {2}) == {2}
