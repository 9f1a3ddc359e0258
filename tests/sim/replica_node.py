"""A simulated replica: the agent and the sessions that a broker runs, on a fake disk and a fake network."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from rocketq.replication import actions as act
from rocketq.replication import fenced_master as master_side
from rocketq.replication import fenced_slave as slave_side
from rocketq.replication.agent import Agent, AgentSettings, LogEnds, Role
from rocketq.replication.control import LeaseLostError
from rocketq.replication.election import LeaseMode
from rocketq.replication.fenced_auth import Credentials
from rocketq.replication.fenced_frames import Frame, FrameDecoder, Introduction, encode_frame
from rocketq.replication.fenced_master import MasterSession
from rocketq.replication.fenced_slave import SlaveSession
from rocketq.replication.handover import QUIET_MS
from rocketq.replication.recovery import promote, recover, truncate

from .impostor import Impostor
from .replica_disk import RECORD_BYTES, ReplicaDisk, record, run_steps
from .replica_history import Violation
from .replica_world import GROUP, LOST, Line, World

TICK_MS = 200
HEARTBEAT_MS = 1_000
SILENCE_MS = 3_000
SEND_TIMEOUT_MS = 3_000
BATCH_RECORDS = 8
SEGMENT_BYTES = 1 << 20


class _Slave:
    """A connection of a slave, at its master."""

    def __init__(self, session: MasterSession, line: Line, now_ms: float) -> None:
        self.session = session
        self.line = line
        self.heard_ms = self.sent_ms = now_ms


class Node:
    def __init__(self, number: int, world: World, settings: AgentSettings, disk: ReplicaDisk) -> None:
        self.number = number
        self.world = world
        self.settings = settings
        self.disk = disk
        self.nodes: Sequence[Node] = ()
        self.life = 0
        self.up = False
        self.paused_to_ms = 0.0
        self.rate = world.rng.uniform(0.95, 1.05)
        self.encodes = False
        self.crash_chance = 0.0
        self.slow_disk = world.rng.choice([0.0, 0.1, 0.5])
        self.auto_resync = False
        self.refused: str | None = None
        self.boots = 0
        self.impostor: Impostor | None = None
        self.usurped_to_ms = 0.0
        self.host_up = True
        self.full = False

    # life

    def start(self) -> None:
        self.up = True
        self.life += 1
        self.paused_to_ms = 0
        self.disk.recover_tail()
        if not self._steps(recover(self.disk)):
            return
        self.claimed = self.disk.log_end  # as a store that was opened: whatever is there counts as synced
        self.host_up = True
        settings = replace(self.settings, boot_id=f"{self.number}-{self.boots}")
        self.agent = Agent(settings, self.disk.load_state(), self._ends())
        self.was_connected = False
        self.refusals = 0
        self.leading_epoch = 0
        self.slaves: list[_Slave] = []
        self.pending: deque[tuple[int, int, float]] = deque()
        self.confirmed = 0
        self.line: Line | None = None
        self.session: SlaveSession | None = None
        self.heard_ms = self.line_ms = 0.0
        self.syncing = False
        self.stopped = self.stopping = False
        self.world.after(self.world.rng.uniform(0, TICK_MS), self._tick, self)

    def kill(self, *, power: bool) -> None:
        """The process is gone; with `power` so is what was not synced."""
        if not self.up:
            return
        self.up = False
        self.life += 1
        for line in self._lines():
            line.close()
        self.world.history.unknown_count += len(getattr(self, "pending", ()))
        if power:
            self.boots += 1
            self.host_up = False
            self.disk.lose_power(self.world.rng)

    def _lines(self) -> list[Line]:
        lines = [slave.line for slave in getattr(self, "slaves", [])]
        return [*lines, self.line] if getattr(self, "line", None) else lines

    def _steps(self, steps: Any) -> bool:
        """Some of the steps, when chance has it that the machine crashes in the middle."""
        stop = self.world.rng.randint(0, 7) if self.world.rng.random() < self.crash_chance else None
        if run_steps(steps, stop):
            return True
        self.kill(power=self.settings.rules.sync_flush)
        self.world.after(500, self.restart)
        return False

    def restart(self) -> None:
        if not self.up:
            self.start()

    def restart_stopped(self) -> None:
        """A process that was asked to stop has ended, and is started again."""
        if self.up and self.stopping:
            self.kill(power=False)
            self.start()

    def stop(self) -> None:
        self.stopping = True
        self._do(self.agent.on_stop(self.clock_ms))

    @property
    def clock_ms(self) -> int:
        """Its own monotonic clock: it has a rate of its own."""
        return int(1_000 + self.number * 777 + self.world.now_ms * self.rate)

    @property
    def is_awake(self) -> bool:
        return self.up and self.paused_to_ms <= self.world.now_ms

    def _ends(self) -> LogEnds:
        last = self.disk.shape.epochs.last
        return LogEnds(self.disk.log_end, self._durable(), last.number if last else 0)

    def _durable(self) -> int:
        """What this process says is synced; it must be true."""
        self.claimed = min(max(self.claimed, self.disk.durable), self.disk.log_end)
        if self.claimed > self.disk.durable:
            raise Violation(f"node {self.number} says {self.claimed} is synced, {self.disk.durable} is")
        return self.claimed

    def _introduction(self) -> Introduction:
        state = self.agent.state
        return Introduction(
            state.cluster, state.broker_name, state.broker_id, state.check_code, SEGMENT_BYTES, self.disk.shape
        )

    def _credentials(self) -> Credentials | None:
        view = self.agent.view
        if view.secret is None:
            return None
        return Credentials(view.secret.value, {number: each.value.check_code for number, each in view.replicas.items()})

    # time

    def _tick(self) -> None:
        self._log_moved()
        self._look_around()
        self._do(self.agent.on_tick(self.clock_ms))
        if not self.up:
            return
        now_ms = self.world.now_ms
        for slave in list(self.slaves):
            if now_ms - slave.heard_ms > SILENCE_MS:
                self._drop_slave(slave)
            elif now_ms - slave.sent_ms >= HEARTBEAT_MS:
                beat = slave.session.heartbeat(self.agent.confirm_offset or 0)
                if beat is not None:
                    slave.sent_ms = now_ms
                    slave.line.send(0, self._wire(beat))
        if self.line is not None and now_ms - max(self.heard_ms, self.line_ms) > SILENCE_MS:
            self._hang_up()
        if self.line is None and self.agent.followed is not None:
            self._connect()
        while self.pending and self.pending[0][2] + SEND_TIMEOUT_MS < now_ms:
            self.pending.popleft()
            self.world.history.unknown_count += 1
        self.world.after(TICK_MS, self._tick, self)

    def _look_around(self) -> None:
        """What a real replica probes while it does not hear its master, and the space on its disk."""
        followed, cuts = self.agent.followed, self.world.cuts
        self.agent.on_room(not self.full, self.clock_ms)
        if followed is None or self.world.now_ms - self.heard_ms <= QUIET_MS:
            self.agent.on_isolation(0, frozenset())
            return
        reaches = frozenset(
            other.agent.broker_id
            for other in self.nodes
            if other.is_awake
            and other is not self
            and other.agent.broker_id != followed.master_id
            and not {(self.number, other.number), (other.number, self.number)} & cuts
        )
        self.agent.on_isolation(followed.epoch, reaches)

    def watched(self) -> None:
        self._do(self.agent.on_changed(self.clock_ms))

    # what the agent wants

    def _do(self, actions: list[act.Action]) -> None:
        for action in actions:
            if not self.up:
                return
            self._act(action)
        self._settle()

    def _act(self, action: act.Action) -> None:
        agent, world = self.agent, self.world
        match action:
            case act.Persist(broker_id, epoch):
                self.disk.seen(broker_id, epoch)
            case act.Read(number):
                world.ask_control(self, lambda t, now: t.view(GROUP, now), lambda a: self._viewed(number, a))
            case act.Commit(number, _, change):
                world.ask_control(
                    self, lambda t, now: (t.commit(GROUP, change, now),), lambda a: self._committed(number, a)
                )
            case act.Grant(ttl_ms):
                sent_ms = self.clock_ms
                world.ask_control(self, lambda t, now: t.grant(ttl_ms, now), lambda a: self._granted(a, sent_ms))
            case act.KeepAlive(lease_id):
                sent_ms = self.clock_ms
                world.ask_control(
                    self, lambda t, now: t.keep_alive(lease_id, now), lambda a: self._kept(lease_id, a, sent_ms)
                )
            case act.Revoke(lease_id):
                world.ask_control(self, lambda t, now: t.revoke(lease_id), lambda a: None)
            case act.Follow():
                world.history.note(f"{world.now_ms:.0f} node {self.number} follows {action}")
                self._hang_up()
                self.heard_ms, self.was_connected, self.refusals = world.now_ms, False, 0
                self._connect()
            case act.StopFollowing():
                self._hang_up()
            case act.Promote(epoch):
                if self._steps(promote(self.disk, epoch)):
                    delay_ms = world.rng.uniform(1, 50)
                    world.after(delay_ms, lambda: self._do(agent.on_promoted(epoch, self._ends(), self.clock_ms)), self)
            case act.Lead(epoch):
                world.history.note(f"{world.now_ms:.0f} node {self.number} leads {epoch} from {self.disk.log_end}")
                world.history.leads(self.number, epoch, self.disk)
                self.leading_epoch = epoch
            case act.StepDown(reason):
                world.history.note(f"{world.now_ms:.0f} node {self.number} steps down: {reason}")
                self._step_down()
            case act.Stopped():
                self.stopped = True

    def _viewed(self, number: int, answer: Any) -> None:
        lost = answer is LOST
        now_ms = self.clock_ms
        self._do(self.agent.on_read_failed(number, now_ms) if lost else self.agent.on_view(number, answer, now_ms))

    def _committed(self, number: int, answer: Any) -> None:
        if answer is LOST:
            self._do(self.agent.on_commit_unknown(number, self.clock_ms))
        else:
            revision = None if isinstance(answer, LeaseLostError) else answer[0]
            self._do(self.agent.on_committed(number, revision, self.clock_ms))

    def _granted(self, answer: Any, sent_ms: int) -> None:
        lost = answer is LOST
        self._do(self.agent.on_grant_failed(self.clock_ms) if lost else self.agent.on_granted(answer, sent_ms))

    def _kept(self, lease_id: int, answer: Any, sent_ms: int) -> None:
        if isinstance(answer, LeaseLostError):
            self._do(self.agent.on_lease_lost(lease_id, self.clock_ms))
        elif answer is not LOST:
            self._do(self.agent.on_kept_alive(lease_id, sent_ms))

    def _step_down(self) -> None:
        self.leading_epoch = 0
        for slave in list(self.slaves):
            self._drop_slave(slave)
        self.world.history.unknown_count += len(self.pending)
        self.pending.clear()

    # as a master

    def send(self, message_id: int) -> bool:
        """A client's send: stored, or rejected."""
        if (
            self.full
            or not self.is_awake
            or getattr(self, "agent", None) is None
            or self.agent.may_write(self.clock_ms) is not None
        ):
            self.world.history.refused_count += 1
            return False
        self.world.history.wrote(self.number, self.leading_epoch)
        if self.settings.lease_mode is LeaseMode.STRICT:
            self._assert_alone()
        self.disk.append(record(message_id, self.disk.log_end // RECORD_BYTES))
        self.pending.append((self.disk.log_end, message_id, self.world.now_ms))
        self._log_moved()
        self._feed_slaves()
        self._settle()
        return True

    def _assert_alone(self) -> None:
        others = [
            node for node in self.nodes if node is not self and node.is_awake and node.agent.may_serve(node.clock_ms)
        ]
        assert not others, f"nodes {self.number} and {others[0].number} both serve"

    def _log_moved(self) -> None:
        self.agent.on_log(self._ends())
        if self.disk.durable < self.disk.log_end and not self.syncing:
            self.syncing = True
            quick = self.settings.rules.sync_flush and self.world.rng.random() > self.slow_disk
            end = self.disk.log_end
            self.world.after(self.world.rng.uniform(1, 10 if quick else 600), lambda: self._synced(end), self)

    def _synced(self, end: int) -> None:
        self.syncing = False
        self.disk.durable = max(self.disk.durable, min(end, self.disk.log_end))
        self._log_moved()
        if self.session is not None and self.session.is_streaming:
            self._acknowledge()
        self._settle()

    def _settle(self) -> None:
        """Answer the sends that may be answered by now."""
        if not self.up or not self.pending:
            return
        end = self.agent.answerable_to(self.clock_ms)
        while self.pending and self.pending[0][0] <= end:
            record_end, message_id, _ = self.pending.popleft()
            self.world.history.acknowledged(message_id, record_end, self.disk, f"node {self.number}")

    def accept(self, line: Line) -> bool:
        """A slave calls."""
        if not self.up or not self.leading_epoch:
            return False
        credentials = self._credentials()
        if credentials is None:
            return False
        session = MasterSession(self.leading_epoch, self._introduction(), credentials, self.world.rng.randbytes(32))
        self.slaves.append(_Slave(session, line, self.world.now_ms))
        return True

    def from_slave(self, line: Line, item: Any) -> None:
        slave = next((each for each in self.slaves if each.line is line), None)
        if slave is None:
            return
        if item is None:
            self._drop_slave(slave)
            return
        slave.heard_ms = self.world.now_ms
        self._record(item)
        self._master_actions(slave, slave.session.on_frame(self._unwire(item), self.disk.shape))
        if self.up:
            self._feed_slaves()
            self._settle()

    def _master_actions(self, slave: _Slave, actions: list[master_side.MasterAction]) -> None:
        for action in actions:
            match action:
                case master_side.Send(frame):
                    self._record(frame)
                    slave.line.send(0, self._wire(frame))
                case master_side.CheckLog(ranges, digests):
                    mismatch = None if digests == self._digest(ranges) else "the logs differ"
                    self._master_actions(slave, slave.session.log_checked(mismatch))
                case master_side.Acked(broker_id, written, durable, learner):
                    self._drop_others(slave)
                    epoch, now_ms = self.leading_epoch, self.clock_ms
                    self._do(self.agent.on_ack(broker_id, epoch, written, durable, now_ms, learner=learner))
                case master_side.ReadControl():
                    self._do(self.agent.on_outdated(self.clock_ms))
                case master_side.Close():
                    self._drop_slave(slave)

    def _digest(self, ranges: tuple[tuple[int, int], ...]) -> bytes:
        return b"".join(sha256(self.disk.read(offset, offset + length)).digest() for offset, length in ranges)

    def _record(self, item: Any) -> None:
        if self.impostor is not None:
            self.impostor.record(item)

    def _drop_others(self, slave: _Slave) -> None:
        """A slave has one connection: an older one of it must not speak for it any more."""
        for other in list(self.slaves):
            if other is not slave and other.session.slave_id == slave.session.slave_id:
                self.slaves.remove(other)
                other.line.close()

    def _drop_slave(self, slave: _Slave) -> None:
        if slave in self.slaves:
            self.slaves.remove(slave)
            slave.line.close()
            self.agent.on_slave_gone(slave.session.slave_id, self.clock_ms)

    def _feed_slaves(self) -> None:
        for slave in self.slaves:
            while (piece := slave.session.next_piece(self.disk.shape)) is not None:
                end = min(piece.offset + BATCH_RECORDS * RECORD_BYTES, piece.limit or self.disk.log_end)
                body = self.disk.read(piece.offset, end)
                frame = slave.session.data(piece, body, self.agent.confirm_offset or 0)
                slave.sent_ms = self.world.now_ms
                slave.line.send(0, self._wire(frame))

    # as a slave

    def _connect(self) -> None:
        followed = self.agent.followed
        if followed is None or self.stopped:
            return
        master = self.nodes[int(followed.ha_addr) - 1]
        if (self.number, master.number) in self.world.cuts or (master.number, self.number) in self.world.cuts:
            return
        credentials = self._credentials()
        if credentials is None:
            return
        line: Line
        line = Line(
            self.world,
            (self, master),
            (lambda item: self._from_master(line, item), lambda item: master.from_slave(line, item)),
        )
        usurper = self.impostor if master.usurped_to_ms > self.world.now_ms else None
        if usurper is not None:
            line = Line(self.world, (self, usurper), (lambda item: self._from_master(line, item), lambda item: None))
            usurper.answer(self, line, followed.epoch)
        elif not master.accept(line):
            self.refusals = self.refusals + 1 if self.was_connected and master.host_up and not master.up else 0
            if self.refusals == 2:
                self._do(self.agent.on_master_dead(followed.epoch, self.clock_ms))
            return
        self.line, self.refusals = line, 0
        self.line_ms = self.world.now_ms
        self.session = SlaveSession(
            followed.epoch, followed.master_id, self._introduction(), credentials, self.world.rng.randbytes(32)
        )
        self.joined = False
        line.send(1, self._wire(self.session.auth_request()))

    def _hang_up(self) -> None:
        line, self.line, self.session = self.line, None, None
        if line is not None:
            line.close()

    def _from_master(self, line: Line, item: Any) -> None:
        if line is not self.line or self.session is None:
            return
        if item is None:
            self._hang_up()
            return
        actions = self.session.on_frame(self._unwire(item))
        if self.session.is_streaming:
            self.heard_ms = self.world.now_ms
            if not self.was_connected:
                self.was_connected = True
                self.agent.on_master_heard()
        self._slave_actions(actions)

    def _slave_actions(self, actions: list[slave_side.SlaveAction]) -> None:
        for action in actions:
            if not self.up or self.session is None:
                return
            match action:
                case slave_side.CutTo(point):
                    before, start = bytes(self.disk.log), self.disk.start
                    if not self._steps(truncate(self.disk, point)):
                        return
                    self.world.history.cut(self.number, before, start, self.disk.log_end)
                    self._cut_done()
                case slave_side.StartAt(offset):
                    self.disk.begin_at(offset)
                    self._cut_done()
                case slave_side.HashLog(ranges):
                    self._slave_actions(self.session.log_hashed(self._digest(ranges)))
                case slave_side.BeginEpoch(number, start):
                    epochs = self.disk.load_epochs()
                    epochs.add(number, start)
                    self.disk.save_epochs(epochs)
                case slave_side.Append(_, body):
                    self.disk.append(body)
                    self._log_moved()
                case slave_side.ConfirmTo(offset):
                    self.confirmed = max(self.confirmed, offset)
                case slave_side.Acknowledge():
                    if not self.joined:
                        self._check_join()
                    self._acknowledge()
                case slave_side.Reply(frame):
                    assert self.line is not None
                    self.line.send(1, self._wire(frame))
                case slave_side.Leave(reason, _, unrelated):
                    self._left(reason, unrelated)

    def _check_join(self) -> None:
        """Before its first acknowledgement; a master of an earlier epoch has nothing to say."""
        self.joined = True
        assert self.session is not None
        assert self.agent.followed is not None
        master = self.nodes[int(self.agent.followed.ha_addr) - 1]
        if master.up and master.leading_epoch == self.session.epoch:
            self.world.history.rejoined(self.number, self.disk, master.disk)

    def _cut_done(self) -> None:
        assert self.session is not None
        ends = self._ends()
        self.agent.on_log(ends)
        self._slave_actions(self.session.cut_done(ends.written, ends.last_epoch))

    def _left(self, reason: str, unrelated: bool) -> None:
        self.refused = reason if unrelated else None
        self._hang_up()
        state = self.agent.view.state
        if unrelated and self.auto_resync and state is not None and self.agent.broker_id not in state.value.in_sync:
            self.disk.start, self.disk.durable = 0, 0
            self.disk.log.clear()

    def _acknowledge(self) -> None:
        if self.session is not None and self.line is not None:
            self.line.send(1, self._wire(self.session.ack(self.disk.log_end, self._durable())))

    # as readers see it

    def visible_to(self) -> int | None:
        """How far a reader may see here; None when nothing is served."""
        if not self.is_awake or getattr(self, "agent", None) is None:
            return None
        if self.agent.role is Role.LEADING:
            return (
                min(self.agent.confirm_offset or 0, self.disk.log_end) if self.agent.may_serve(self.clock_ms) else None
            )
        return min(self.confirmed, self.disk.log_end)

    def _wire(self, frame: Frame) -> Any:
        return encode_frame(frame) if self.encodes else frame

    def _unwire(self, item: Any) -> Frame:
        return next(FrameDecoder().feed(item)) if self.encodes else item
