"""The agent of a replica decides when to follow, campaign, lead and retire. Pure: events and time in, actions out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from rocketq.replication import control
from rocketq.replication.actions import (
    AcceptAgain,
    Action,
    Commit,
    Follow,
    Grant,
    KeepAlive,
    Lead,
    Persist,
    Promote,
    Purpose,
    Read,
    Revoke,
    StepDown,
    StopAccepting,
    StopFollowing,
    Stopped,
)
from rocketq.replication.confirm import SyncRules, Term
from rocketq.replication.control import AliveReport, ChangeRejectedError, GroupView, MasterKey, Replica, Transaction
from rocketq.replication.election import Lease, LeaseMode, LeaseTimes, Surroundings, campaign_delay_ms
from rocketq.replication.handover import FULL_MS, HandOver, isolation_target, may_shrink, room_target
from rocketq.replication.recovery import HaState


class Role(Enum):
    JOINING = "joining"
    FOLLOWING = "following"
    PROMOTING = "promoting"
    LEADING = "leading"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    addr: str
    ha_addr: str
    times: LeaseTimes = field(default_factory=LeaseTimes)
    lease_mode: LeaseMode = LeaseMode.AVAILABLE
    rules: SyncRules = field(default_factory=SyncRules)
    poll_ms: int = 5_000
    """Interval of reads of the control store without a notification."""
    hurry_ms: int = 500
    """The same while there is no master, or after a failure."""
    answer_ms_max: int = 3_000
    """Requests to the control store fail after this time."""
    retire_ms_max: int = 5_000
    boot_id: str = ""
    """Identifies the boot of this machine; empty: unknown."""
    new_secret: bytes = field(default=b"", repr=False)
    """Random; put into the control store when it holds no secret. Empty: the secret comes from a file."""
    report_ms: int = 5_000
    """Interval of each replica's report of its log end, for operators and elections."""


@dataclass(frozen=True, slots=True)
class LogEnds:
    """A replica's own log."""

    written: int
    durable: int
    last_epoch: int = 0


class Agent:
    """State machine of one replica. Not thread-safe: one task feeds events and executes the actions in order."""

    def __init__(self, settings: AgentSettings, state: HaState, ends: LogEnds) -> None:
        self.settings = settings
        self.state = state
        self.role = Role.JOINING
        self.view = GroupView()
        self.lease: Lease | None = None
        self.term: Term | None = None
        self.followed: Follow | None = None
        self._ends = ends
        self._reading_ms: int | None = None
        self._read_ms: int | None = None
        self._read_count = 0
        self._read_needed = 0  # nothing is decided before the answer of this or a later read
        self._granting_ms: int | None = None
        self._commit: Commit | None = None
        self._commit_ms = 0
        self._commit_id = 0  # which id an APPLY asked for
        self._commit_count = 0
        self._vacant_ms: int | None = None
        self._led_epoch = 0
        self._reported_ms: int | None = None
        self._around = Surroundings()
        self._abandons_tail = False
        self._switched_to = 0  # the revision of the last switch request that was handled
        self._retiring_ms: int | None = None
        self._preferred_id = 0
        self.handing_over = HandOver.NONE
        self._stopping = False

    # Queries

    @property
    def broker_id(self) -> int:
        return self.state.broker_id

    @property
    def confirm_offset(self) -> int | None:
        """Known to a master only."""
        return self.term.confirm_offset if self.term else None

    def may_write(self, now_ms: int) -> str | None:
        """None when a write may be stored now, otherwise the reason."""
        if self.role is not Role.LEADING or self.term is None:
            return "this replica is not the master"
        if self._retiring_ms is not None:
            return "the master is being switched"
        if not self.term.enough_in_sync:
            return f"{len(self.term.in_sync)} replicas are in sync, minInSyncReplicas is {self.term.rules.min_in_sync}"
        return None if self.may_serve(now_ms) else "the master's lease is not valid"

    def may_serve(self, now_ms: int) -> bool:
        """Whether a master may serve reads and offsets; `strict` asks for a valid lease."""
        return self.role is Role.LEADING and (not self._is_strict or self.has_lease(now_ms))

    def has_lease(self, now_ms: int) -> bool:
        """Whether the lease is valid. Queue locks, delay, transaction and deletion services require it in both modes. A
        handover invalidates it."""
        return self.handing_over is HandOver.NONE and self.lease is not None and self.lease.is_valid(now_ms)

    @property
    def _is_strict(self) -> bool:
        return self.settings.lease_mode is LeaseMode.STRICT

    def answerable_to(self, now_ms: int) -> int:
        """Log offset up to which writes may be answered SEND_OK now; -1: none."""
        if self.term is None or not self.term.enough_in_sync or not self.may_serve(now_ms):
            return -1
        return self.term.confirm_offset

    def on_tick(self, now_ms: int) -> list[Action]:
        """Every 100 ms or so."""
        if self.role is Role.STOPPED:
            return []
        actions = self._keep_lease(now_ms)
        if self._commit is not None and now_ms - self._commit_ms > self.settings.answer_ms_max:
            actions += self._commit_unknown(now_ms)
        actions += self._read_if_due(now_ms)
        return actions + self._decide(now_ms)

    def _keep_lease(self, now_ms: int) -> list[Action]:
        if self.lease is None:
            if self._granting_ms is not None and now_ms - self._granting_ms < self.settings.answer_ms_max:
                return []
            self._granting_ms = now_ms
            return [Grant(self.settings.times.ttl_ms)]
        if not self.lease.is_due(now_ms):
            return []
        self.lease.asked(now_ms)
        return [KeepAlive(self.lease.id)]

    def _read_if_due(self, now_ms: int) -> list[Action]:
        if self._reading_ms is not None and now_ms - self._reading_ms < self.settings.answer_ms_max:
            return []
        calm = self.role in (Role.LEADING, Role.FOLLOWING) and self.view.master is not None and not self._read_needed
        period_ms = self.settings.poll_ms if calm else self.settings.hurry_ms
        if self._read_ms is not None and now_ms - self._read_ms < period_ms:
            return []
        return self._read(now_ms)

    def _read(self, now_ms: int) -> list[Action]:
        self._reading_ms = self._read_ms = now_ms
        self._read_count += 1
        return [Read(self._read_count)]

    def _read_first(self, now_ms: int) -> list[Action]:
        """Read, and decide nothing before the answer: the known view may be outdated."""
        actions = self._read(now_ms)
        self._read_needed = self._read_count
        return actions

    def _decide(self, now_ms: int) -> list[Action]:
        """The next change, unless one is in progress."""
        if self._commit is not None or self._read_needed or self.view.revision == 0:
            return []
        if self.view.secret is None and self.settings.new_secret:
            return self._send(Purpose.SECRET, control.create_secret(self.settings.new_secret), now_ms)
        if self.role is Role.JOINING:
            return self._join(now_ms)
        actions: list[Action] = []
        if self.role is Role.FOLLOWING:
            actions = self._campaign(now_ms)
        elif self.role is Role.LEADING:
            if self._retiring_ms is None:
                actions = self._hand_over(now_ms)
            actions += self._retire(now_ms) if self._retiring_ms is not None else self._maintain(now_ms)
        return actions or self._report_if_due(now_ms)

    def _join(self, now_ms: int) -> list[Action]:
        known = self.view.replicas.get(self.broker_id)
        if known is not None and known.value.check_code == self.state.check_code:
            self.role = Role.FOLLOWING
            return self._follow()
        number, change = control.apply_for_id(self.view, Replica(self.settings.addr, self.state.check_code))
        self._commit_id = number
        return self._send(Purpose.APPLY, change, now_ms)

    def _own_id_in(self, view: GroupView) -> int | None:
        """The id that was granted to this store when the answer was lost."""
        for number, replica in view.replicas.items():
            if replica.value.check_code == self.state.check_code:
                return number
        return None

    # ClassicSlaveSession

    def _follow(self) -> list[Action]:
        """Follow the current master. Without one the old stream continues: its data is still valid."""
        master = self.view.master
        if master is None or master.value.broker_id == self.broker_id or master.value.epoch < self.state.epoch:
            return []
        wanted = Follow(master.value.broker_id, master.value.ha_addr, master.value.epoch, master.value.addr)
        if wanted == self.followed:
            return []
        self.followed = wanted
        return [wanted]

    # Campaigning

    def _campaign(self, now_ms: int) -> list[Action]:
        if not self._around.is_vacant(self.view, self.broker_id, self.settings.boot_id):
            self._vacant_ms = None
            return []
        if self._stopping or self.lease is None or not self.lease.is_valid(now_ms):
            return []
        if self._vacant_ms is None:
            self._vacant_ms = now_ms
            if self._campaign_delay_ms():
                return self._report(now_ms)
        delay_ms = self._campaign_delay_ms()
        if delay_ms is None or now_ms - self._vacant_ms < delay_ms:
            return []
        settings = self.settings
        try:
            key = MasterKey(self.broker_id, 0, settings.ha_addr, settings.addr, settings.boot_id)
            _, change = control.elect(self.view, key, self.lease.id, dead_epoch=self._around.dead_epoch)
        except ChangeRejectedError:
            return []
        return self._send(Purpose.ELECT, change, now_ms)

    def _campaign_delay_ms(self) -> int | None:
        ends, has_room = self._ends, self._around.has_room
        return campaign_delay_ms(self.view, self.broker_id, ends.last_epoch, ends.written, has_room=has_room)

    def on_master_dead(self, epoch: int, now_ms: int) -> list[Action]:
        """The master's machine refuses connections at an address where the master of this epoch was connected: its
        process has ended, and a member of S may replace it before its lease expires. `strict` relies on leases only."""
        master = self.view.master
        if self._is_strict or self.role is not Role.FOLLOWING or self._around.dead_epoch == epoch:
            return []
        if master is None or master.value.epoch != epoch or master.value.broker_id == self.broker_id:
            return []
        self._observe(replace(self._around, dead_epoch=epoch))
        return self._read_first(now_ms)

    def on_master_heard(self) -> None:
        """A stream from the master was established."""
        self._observe(replace(self._around, dead_epoch=0))

    def on_isolation(self, epoch: int, reaches: frozenset[int]) -> None:
        """A slave does not hear the master of `epoch` (0: it does), and can connect to these other replicas."""
        self._observe(replace(self._around, isolated_epoch=epoch, reaches=reaches))

    def on_room(self, has_room: bool, now_ms: int) -> None:
        """Whether the disk has space for messages."""
        if has_room != (self._around.full_ms is None):
            self._observe(replace(self._around, full_ms=None if has_room else now_ms))

    def _observe(self, around: Surroundings) -> None:
        """A change is reported at once."""
        if around != self._around:
            self._around, self._reported_ms = around, None

    def _report_if_due(self, now_ms: int) -> list[Action]:
        recently = self._reported_ms is not None and now_ms - self._reported_ms < self.settings.report_ms
        if self.lease is None or recently or self.role not in (Role.FOLLOWING, Role.LEADING):
            return []
        return self._report(now_ms)

    def _report(self, now_ms: int) -> list[Action]:
        assert self.lease is not None
        self._reported_ms = now_ms
        slaves = self.term.lags(now_ms) if self.term is not None else ()
        report = AliveReport(
            self.settings.ha_addr,
            self._ends.written,
            self._ends.last_epoch,
            slaves,
            max(self._around.isolated_epoch, self._around.dead_epoch),
            tuple(sorted(self._around.reaches)),
            self._around.has_room,
        )
        return self._send(Purpose.REPORT, control.report_alive(self.broker_id, report, self.lease.id), now_ms)

    def _promote(self, epoch: int) -> list[Action]:
        self.role, self._led_epoch, self._vacant_ms = Role.PROMOTING, epoch, None
        self.followed = None
        return [StopFollowing(), *self._see_epoch(epoch), Promote(epoch)]

    def on_promoted(self, epoch: int, ends: LogEnds, now_ms: int) -> list[Action]:
        """The promotion is complete; the epoch starts at `ends.written`."""
        state = self.view.state
        if self.role is not Role.PROMOTING or epoch != self._led_epoch or state is None or state.value.epoch != epoch:
            return []
        self._ends = ends
        self.role = Role.LEADING
        self.term = Term(
            broker_id=self.broker_id,
            epoch=epoch,
            epoch_start=ends.written,
            rules=self.settings.rules,
            in_sync=state.value.in_sync,
            version=state.value.version,
            revision=state.revision,
            began_ms=now_ms,
            confirm_offset=ends.written,
            own_acked_end=ends.written,
            own_written=ends.written,
        )
        return [Lead(epoch)]

    def on_promotion_failed(self, reason: str, now_ms: int) -> list[Action]:
        """The disk failed; release the lease so that another in-sync replica can be elected."""
        return self._step_down(f"the promotion failed: {reason}", now_ms) + self._leave_lease()

    # Leading

    def on_log(self, ends: LogEnds) -> None:
        """This replica's log was appended to or synced."""
        self._ends = ends
        if self.term is not None:
            self.term.on_own(ends.written, ends.durable)

    def on_ack(
        self, broker_id: int, epoch: int, written: int, durable: int, now_ms: int, *, learner: bool = False
    ) -> list[Action]:
        """An acknowledgement of a slave in a stream of this epoch."""
        if self.term is None or epoch != self.term.epoch:
            return []
        self.term.on_ack(broker_id, written, durable, now_ms, learner=learner)
        is_awaited = self._retiring_ms is not None or (broker_id not in self.term.in_sync and not learner)
        return self._decide(now_ms) if is_awaited else []

    def on_slave_gone(self, broker_id: int, now_ms: int) -> None:
        if self.term is not None:
            self.term.on_disconnected(broker_id, now_ms)

    def _maintain(self, now_ms: int) -> list[Action]:
        assert self.term is not None
        wanted = self.term.wanted_set(now_ms)
        if wanted is None or self.lease is None or not may_shrink(self.view, self.term, wanted, now_ms):
            return []
        if self.view.state is None or self.view.state.revision != self.term.revision:
            return []
        try:
            _, change = control.alter_set(self.view, self.broker_id, self.lease.id, wanted)
        except ChangeRejectedError:
            return []
        self.term.propose(wanted)
        return self._send(Purpose.ALTER, change, now_ms)

    def on_outdated(self, now_ms: int) -> list[Action]:
        """A peer names an epoch or a replica that this one does not know. Peers are not believed, because anybody can
        connect: the control store is read, and only what it holds has an effect."""
        recently = self._read_ms is not None and now_ms - self._read_ms < self.settings.hurry_ms
        return [] if recently or self.role is Role.STOPPED else self._read(now_ms)

    def _see_epoch(self, epoch: int) -> list[Action]:
        if epoch <= self.state.epoch:
            return []
        self.state = replace(self.state, epoch=epoch)
        return [Persist(self.broker_id, self.state.epoch)]

    def _step_down(self, reason: str, now_ms: int) -> list[Action]:
        self.role, self.term, self._vacant_ms = Role.FOLLOWING, None, None
        self._retiring_ms, self.followed, self.handing_over = None, None, HandOver.NONE
        self._abandons_tail = False
        return [StepDown(reason), *self._read_first(now_ms)]

    def _leave_lease(self) -> list[Action]:
        lease, self.lease = self.lease, None
        return [Revoke(lease.id)] if lease else []

    # Retiring

    def on_switch(self, preferred_id: int, now_ms: int) -> list[Action]:
        """Start a planned switch to a replica, or (0) to any. ChangeRejectedError when it is not possible."""
        if self.role is not Role.LEADING or self.term is None:
            raise ChangeRejectedError("this replica is not the master")
        others = self.term.in_sync - {self.broker_id}
        if not others or (preferred_id and preferred_id not in others):
            raise ChangeRejectedError(f"replica {preferred_id or 'other than the master'} is not in sync")
        self._retiring_ms, self._preferred_id = now_ms, preferred_id or self._longest_of(others)
        return [StopAccepting()]

    def _hand_over(self, now_ms: int) -> list[Action]:
        """Retire when this master cannot serve and a slave can: it is cut off from its slaves, or its disk is full."""
        assert self.term is not None
        target = isolation_target(self.view, self.term, now_ms)
        if target is not None:
            self._abandons_tail = True  # it cannot reach the slaves; nothing of it was acknowledged
        elif self._around.full_ms is not None and now_ms - self._around.full_ms >= FULL_MS:
            target = room_target(self.view, self.term, now_ms)
        if target is None:
            return []
        self._retiring_ms, self._preferred_id = now_ms, target
        return [StopAccepting()]

    def _handle_switch_request(self, view: GroupView, now_ms: int) -> list[Action]:
        """Handle an operator's switch request once; ignore one that is no longer possible."""
        wish = view.switch_to
        if wish is None or wish.revision <= self._switched_to or self.role is not Role.LEADING:
            return []
        self._switched_to = wish.revision
        try:
            return self.on_switch(wish.value, now_ms)
        except ChangeRejectedError:
            return []

    def _longest_of(self, members: frozenset[int]) -> int:
        assert self.term is not None
        followers = self.term.followers
        return max(members, key=lambda member: (followers[member].acked_end if member in followers else 0, -member))

    def on_stop(self, now_ms: int) -> list[Action]:
        """Stop cleanly: a master first waits until the in-sync slaves have its whole log."""
        self._stopping = True
        if self.role is Role.LEADING:
            self._retiring_ms, self._preferred_id = now_ms, 0
            return [StopAccepting()]
        return self._stopped()

    def _stopped(self) -> list[Action]:
        self.role, self.followed = Role.STOPPED, None
        return [StopFollowing(), *self._leave_lease(), Stopped()]

    def _retire(self, now_ms: int) -> list[Action]:
        assert self.term is not None
        assert self._retiring_ms is not None
        late = now_ms - self._retiring_ms > self.settings.retire_ms_max
        if self.term.confirm_offset < self.term.own_written and not late and not self._abandons_tail:
            return self._maintain(now_ms)
        if late and not self._stopping and not self._must_go:
            return self._stay()
        if self.lease is None:
            return self._stopped_master("without a lease")
        try:
            _, change = control.retire(self.view, self.broker_id, self.lease.id, self._preferred_id)
        except ChangeRejectedError as refusal:
            if self._stopping:
                return self._stopped_master(str(refusal))
            if not self._must_go:
                return self._stay()
            self._preferred_id = 0  # any in-sync replica
            return []
        self.handing_over = HandOver.ASKED
        return self._send(Purpose.RETIRE, change, now_ms)

    @property
    def _must_go(self) -> bool:
        """Whether the handover must continue: an unanswered RETIRE may still be applied, so a `strict` master cannot
        serve again."""
        return self._is_strict and self.handing_over is HandOver.ASKED

    def _stay(self) -> list[Action]:
        self._retiring_ms, self.handing_over, self._abandons_tail = None, HandOver.NONE, False
        return [AcceptAgain()]

    def _stopped_master(self, reason: str) -> list[Action]:
        self.term, self._retiring_ms, self.handing_over = None, None, HandOver.NONE
        return [StepDown(f"stopped: {reason}"), *self._stopped()]

    # Answers of the control store

    def on_changed(self, now_ms: int) -> list[Action]:
        """A key of the group has changed."""
        return self._read(now_ms) if self.role is not Role.STOPPED else []

    def on_read_failed(self, number: int, now_ms: int) -> list[Action]:
        if number == self._read_count:
            self._reading_ms = None
        return []

    def on_view(self, number: int, view: GroupView, now_ms: int) -> list[Action]:
        if number == self._read_count:
            self._reading_ms = None
        if number >= self._read_needed:
            self._read_needed = 0
        if view.revision < self.view.revision or self.role is Role.STOPPED:
            return []  # an older answer that arrived late
        self.view = view
        actions = self._see_epoch(view.epoch)
        if self.role is Role.JOINING:
            return actions + self._find_own_id(view) + self._decide(now_ms)
        if self.role in (Role.LEADING, Role.PROMOTING):
            actions += self._check_mastership(view, now_ms) or self._handle_switch_request(view, now_ms)
        elif self.role is Role.FOLLOWING:
            actions += self._promote(view.epoch) if self._is_elected(view) else self._follow()
        return actions + self._decide(now_ms)

    def _find_own_id(self, view: GroupView) -> list[Action]:
        number = self._own_id_in(view)
        if number is None or number == self.broker_id:
            return []
        self.state = replace(self.state, broker_id=number)
        return [Persist(self.broker_id, self.state.epoch)]

    def _is_elected(self, view: GroupView) -> bool:
        """Whether this replica's ELECT was applied, even when its answer was lost; true once per epoch."""
        state, master, lease = view.state, view.master, self.lease
        if state is None or master is None or lease is None or state.value.epoch <= self._led_epoch:
            return False
        own = state.value.master_id == master.value.broker_id == self.broker_id
        return own and master.lease_id == lease.id and master.value.epoch == state.value.epoch == self.state.epoch

    def _check_mastership(self, view: GroupView, now_ms: int) -> list[Action]:
        state, master = view.state, view.master
        if state is None or state.value.epoch != self._led_epoch or state.value.master_id != self.broker_id:
            return self._step_down(f"epoch {view.epoch} has begun", now_ms)
        if master is None or self.lease is None or master.lease_id != self.lease.id:
            return self._step_down("the master's lease has ended", now_ms)
        if self.term is not None:
            self.term.adopt(state.value, state.revision)
        if self.handing_over is HandOver.NOT_MADE and not self._read_needed:
            self.handing_over = HandOver.NONE
        return []

    def on_granted(self, lease_id: int, sent_ms: int) -> list[Action]:
        """A lease that is granted too late is revoked."""
        if self.lease is not None or self.role is Role.STOPPED:
            return [Revoke(lease_id)]
        self.lease, self._granting_ms = Lease(lease_id, sent_ms, self.settings.times), None
        return []

    def on_grant_failed(self, now_ms: int) -> list[Action]:
        self._granting_ms = now_ms - self.settings.answer_ms_max + self.settings.hurry_ms
        return []

    def on_kept_alive(self, lease_id: int, sent_ms: int) -> list[Action]:
        if self.lease is not None and self.lease.id == lease_id:
            self.lease.answered(sent_ms)
        return []

    def on_lease_lost(self, lease_id: int, now_ms: int) -> list[Action]:
        if self.lease is None or self.lease.id != lease_id:
            return []
        self.lease = None
        if self.role in (Role.LEADING, Role.PROMOTING):
            return self._step_down("the master's lease has ended", now_ms)
        return []

    def on_committed(self, number: int, revision: int | None, now_ms: int) -> list[Action]:
        """A change was applied, or (None) lost to a concurrent one. In both cases the group is read again."""
        sent = self._commit
        if sent is None or sent.number != number:
            return []
        self._commit = None
        if sent.purpose is Purpose.REPORT:
            return []
        if sent.purpose is Purpose.RETIRE:
            if revision is not None:
                return self._retired(now_ms)
            if self.handing_over is HandOver.ASKED:
                self.handing_over = HandOver.NOT_MADE
        return self._read_first(now_ms)

    def on_commit_unknown(self, number: int, now_ms: int) -> list[Action]:
        if self._commit is None or self._commit.number != number:
            return []
        return self._commit_unknown(now_ms)

    def _commit_unknown(self, now_ms: int) -> list[Action]:
        self._commit = None
        return self._read_first(now_ms)

    def _retired(self, now_ms: int) -> list[Action]:
        if self._stopping:
            return self._stopped_master("another replica takes over")
        if self._retiring_ms is None:  # late answer: this replica stepped down meanwhile
            return self._read_first(now_ms)
        return self._step_down("another replica takes over, as planned", now_ms)

    def _send(self, purpose: Purpose, change: Transaction, now_ms: int) -> list[Action]:
        self._commit_count += 1
        self._commit, self._commit_ms = Commit(self._commit_count, purpose, change), now_ms
        return [self._commit]
