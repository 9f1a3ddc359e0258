"""One mastership: who has the log how far, what is confirmed, and whom the in-sync set should have."""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketq.replication.control import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRules:
    min_in_sync: int = 1
    all_ack: bool = True
    sync_flush: bool = False
    """A replica has what it has synced, not what it has written."""
    behind_ms_max: int = 15_000
    gone_ms_max: int = 3_000


@dataclass(slots=True)
class Follower:
    """A slave as the master sees it in this epoch."""

    has: int
    """As far as it has the log, by the rule for flushing."""
    written: int
    learner: bool
    caught_up_ms: int
    acked_ms: int
    own_has: int
    """How far the master had it when this slave last told."""
    connected: bool = True
    gone_ms: int = 0


@dataclass(slots=True)
class Term:
    """State of a master in one epoch. `confirm_offset` never goes back.

    A proposed set counts from before it is sent until the state it was based on is gone: so long it may be committed.
    """

    broker_id: int
    epoch: int
    epoch_start: int
    rules: SyncRules
    in_sync: frozenset[int]
    version: int
    revision: int
    """Of the state in the control store that `in_sync` was taken from."""
    began_ms: int
    confirm_offset: int
    own_has: int
    own_written: int
    followers: dict[int, Follower] = field(default_factory=dict)
    _proposed: set[frozenset[int]] = field(default_factory=set)

    # What is acknowledged

    @property
    def enough_in_sync(self) -> bool:
        return len(self.in_sync) >= self.rules.min_in_sync

    def on_own(self, written: int, durable: int) -> None:
        """The master's own log has grown or was synced."""
        self.own_written = max(self.own_written, written)
        self.own_has = max(self.own_has, durable if self.rules.sync_flush else written)
        self._advance()

    def on_ack(self, broker_id: int, written: int, durable: int, now_ms: int, *, learner: bool = False) -> None:
        """A slave told, in this epoch, how far its log (a prefix of ours) goes."""
        has = durable if self.rules.sync_flush else written
        known = self.followers.get(broker_id)
        if known is None:
            caught_up_ms = now_ms if has >= self.own_has else self.began_ms
            self.followers[broker_id] = Follower(has, written, learner, caught_up_ms, now_ms, self.own_has)
        else:
            if has >= self.own_has:
                known.caught_up_ms = now_ms
            elif has >= known.own_has:  # it has all there was when it told last
                known.caught_up_ms = max(known.caught_up_ms, known.acked_ms)
            known.has, known.written = has, written  # less than before when its machine lost what was not synced
            known.learner, known.connected = learner, True
            known.acked_ms, known.own_has = now_ms, self.own_has
        self._advance()

    def on_disconnected(self, broker_id: int, now_ms: int) -> None:
        follower = self.followers.get(broker_id)
        if follower is not None and follower.connected:
            follower.connected, follower.gone_ms = False, now_ms

    @property
    def holders(self) -> frozenset[int]:
        """Whoever is in sync, or may be by now: what one of these lacks can get lost."""
        return self.in_sync.union(*self._proposed)

    def _advance(self) -> None:
        ends = [self._end_of(member) for member in self.holders]
        if self.rules.all_ack:
            if None not in ends:
                self.confirm_offset = max(self.confirm_offset, min(end for end in ends if end is not None))
            return
        known = sorted((end for end in ends if end is not None), reverse=True)
        copies = max(self.rules.min_in_sync, 1)
        if len(known) >= copies:
            self.confirm_offset = max(self.confirm_offset, min(known[copies - 1], self.own_has))

    def _end_of(self, member: int) -> int | None:
        if member == self.broker_id:
            return self.own_has
        follower = self.followers.get(member)
        return follower.has if follower is not None else None

    def lags(self, now_ms: int) -> tuple[tuple[int, int, int], ...]:
        """For people: of each slave its id, how far it has written, and for how long it has not had everything."""
        return tuple(
            (member, each.written, 0 if each.has >= self.own_has else max(0, now_ms - each.caught_up_ms))
            for member, each in sorted(self.followers.items())
        )

    # Who is in sync

    def wanted_set(self, now_ms: int) -> frozenset[int] | None:
        """The set to propose now; None while it is right as it is. After a proposal whose outcome nobody knows there is
        always one: only another change makes sure that it cannot be committed any more."""
        kept = frozenset(member for member in self.in_sync if not self._must_go(member, now_ms))
        wanted = kept.union(member for member, follower in self.followers.items() if self._may_come(member, follower))
        return wanted if wanted != self.in_sync or self._proposed else None

    def _must_go(self, member: int, now_ms: int) -> bool:
        if member == self.broker_id:
            return False
        follower = self.followers.get(member)
        if follower is None:
            return now_ms - self.began_ms > self.rules.gone_ms_max
        if not follower.connected and now_ms - follower.gone_ms > self.rules.gone_ms_max:
            return True
        if self.rules.all_ack and follower.has < self.confirm_offset:  # it lost what it had confirmed
            return True
        behind = follower.has < self.own_has
        return behind and now_ms - follower.caught_up_ms > self.rules.behind_ms_max

    def _may_come(self, member: int, follower: Follower) -> bool:
        caught_up = follower.has >= self.confirm_offset and follower.has >= self.epoch_start
        return member not in self.in_sync and follower.connected and not follower.learner and caught_up

    def propose(self, in_sync: frozenset[int]) -> None:
        """Before the proposal is sent: nothing is confirmed any more that one of these lacks."""
        self._proposed.add(in_sync)

    def adopt(self, state: GroupState, revision: int) -> None:
        """What the control store says of this epoch. With a newer revision no earlier proposal can be committed."""
        if state.epoch != self.epoch or revision <= self.revision:
            return
        self.in_sync, self.version, self.revision = state.in_sync, state.version, revision
        self._proposed.clear()
        self._advance()
