"""State of one mastership: acknowledged ends, the confirm offset and the members of the in-sync set."""

from __future__ import annotations

from dataclasses import dataclass, field

from rocketq.replication.control import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRules:
    min_in_sync: int = 1
    all_ack: bool = True
    sync_flush: bool = False
    """Count synced bytes, not written ones."""
    behind_ms_max: int = 15_000
    gone_ms_max: int = 3_000


@dataclass(slots=True)
class Follower:
    """A slave as the master sees it in this epoch."""

    acked_end: int
    """Acknowledged end: written or durable, depending on `sync_flush`."""
    written: int
    learner: bool
    caught_up_ms: int
    acked_ms: int
    own_acked_end: int
    """The master's own end at this slave's last acknowledgement."""
    connected: bool = True
    gone_ms: int = 0


@dataclass(slots=True)
class Term:
    """State of a master in one epoch. `confirm_offset` never decreases.

    A proposed set counts from before it is sent until the state it is based on has changed: it may be committed until
    then.
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
    own_acked_end: int
    own_written: int
    followers: dict[int, Follower] = field(default_factory=dict)
    _proposed: set[frozenset[int]] = field(default_factory=set)

    # What is acknowledged

    @property
    def enough_in_sync(self) -> bool:
        return len(self.in_sync) >= self.rules.min_in_sync

    def on_own(self, written: int, durable: int) -> None:
        """The master's own log was appended to or synced."""
        self.own_written = max(self.own_written, written)
        self.own_acked_end = max(self.own_acked_end, durable if self.rules.sync_flush else written)
        self._advance()

    def on_ack(self, broker_id: int, written: int, durable: int, now_ms: int, *, learner: bool = False) -> None:
        """A slave acknowledged its log ends in this epoch; its log is a prefix of the master's."""
        has = durable if self.rules.sync_flush else written
        known = self.followers.get(broker_id)
        if known is None:
            caught_up_ms = now_ms if has >= self.own_acked_end else self.began_ms
            self.followers[broker_id] = Follower(has, written, learner, caught_up_ms, now_ms, self.own_acked_end)
        else:
            if has >= self.own_acked_end:
                known.caught_up_ms = now_ms
            elif has >= known.own_acked_end:  # it has everything that existed at its last acknowledgement
                known.caught_up_ms = max(known.caught_up_ms, known.acked_ms)
            known.acked_end, known.written = has, written  # may decrease when its machine lost unsynced data
            known.learner, known.connected = learner, True
            known.acked_ms, known.own_acked_end = now_ms, self.own_acked_end
        self._advance()

    def on_disconnected(self, broker_id: int, now_ms: int) -> None:
        follower = self.followers.get(broker_id)
        if follower is not None and follower.connected:
            follower.connected, follower.gone_ms = False, now_ms

    @property
    def possible_members(self) -> frozenset[int]:
        """Members of the in-sync set and of every proposed set: each of them can be elected."""
        return self.in_sync.union(*self._proposed)

    def _advance(self) -> None:
        ends = [self._end_of(member) for member in self.possible_members]
        if self.rules.all_ack:
            if None not in ends:
                self.confirm_offset = max(self.confirm_offset, min(end for end in ends if end is not None))
            return
        known = sorted((end for end in ends if end is not None), reverse=True)
        copies = max(self.rules.min_in_sync, 1)
        if len(known) >= copies:
            self.confirm_offset = max(self.confirm_offset, min(known[copies - 1], self.own_acked_end))

    def _end_of(self, member: int) -> int | None:
        if member == self.broker_id:
            return self.own_acked_end
        follower = self.followers.get(member)
        return follower.acked_end if follower is not None else None

    def lags(self, now_ms: int) -> tuple[tuple[int, int, int], ...]:
        """For operators: id, written end and duration of the lag of each slave."""
        return tuple(
            (member, each.written, 0 if each.acked_end >= self.own_acked_end else max(0, now_ms - each.caught_up_ms))
            for member, each in sorted(self.followers.items())
        )

    # Who is in sync

    def wanted_set(self, now_ms: int) -> frozenset[int] | None:
        """The set to propose now; None when no change is needed. After a proposal with unknown outcome there is always
        one: only another change makes sure that it cannot be committed later."""
        kept = frozenset(member for member in self.in_sync if not self._must_go(member, now_ms))
        wanted = kept.union(member for member, follower in self.followers.items() if self._may_join(member, follower))
        return wanted if wanted != self.in_sync or self._proposed else None

    def _must_go(self, member: int, now_ms: int) -> bool:
        if member == self.broker_id:
            return False
        follower = self.followers.get(member)
        if follower is None:
            return now_ms - self.began_ms > self.rules.gone_ms_max
        if not follower.connected and now_ms - follower.gone_ms > self.rules.gone_ms_max:
            return True
        if self.rules.all_ack and follower.acked_end < self.confirm_offset:  # it lost confirmed data
            return True
        behind = follower.acked_end < self.own_acked_end
        return behind and now_ms - follower.caught_up_ms > self.rules.behind_ms_max

    def _may_join(self, member: int, follower: Follower) -> bool:
        caught_up = follower.acked_end >= self.confirm_offset and follower.acked_end >= self.epoch_start
        return member not in self.in_sync and follower.connected and not follower.learner and caught_up

    def propose(self, in_sync: frozenset[int]) -> None:
        """Call before the proposal is sent: from now on these members must have everything that is confirmed."""
        self._proposed.add(in_sync)

    def adopt(self, state: GroupState, revision: int) -> None:
        """Adopt the state from the control store. With a newer revision no earlier proposal can be committed."""
        if state.epoch != self.epoch or revision <= self.revision:
            return
        self.in_sync, self.version, self.revision = state.in_sync, state.version, revision
        self._proposed.clear()
        self._advance()
