"""Runs a replica: passes events to its agent and executes the agent's actions in order."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import os
import ssl
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final, Protocol

from rocketq.errors import RocketQError
from rocketq.replication import actions as act
from rocketq.replication.agent import Agent, AgentSettings, Role
from rocketq.replication.control import ControlError, ControlStore, Group, LeaseLostError
from rocketq.replication.fenced_auth import Credentials
from rocketq.replication.fenced_follower import Follower, can_connect
from rocketq.replication.fenced_frames import Introduction
from rocketq.replication.fenced_listener import FencedListener, Mastership
from rocketq.replication.fenced_master import Acked
from rocketq.replication.fenced_slave import Leave
from rocketq.replication.handover import QUIET_MS
from rocketq.replication.recovery import promote, recover
from rocketq.replication.replica_files import FencedStore
from rocketq.runtime.clock import Clock
from rocketq.store.flush import ReplicaGate

log = logging.getLogger(__name__)

TICK_MS: Final = 100
WATCH_MS: Final = 10_000
ANSWER_TIMEOUT_MS: Final = 3_000
PROBE_MS: Final = 500
BOOT_ID_PATH: Final = Path("/proc/sys/kernel/random/boot_id")


class RoleListener(Protocol):
    """Callbacks into the broker, called one at a time."""

    async def lead(self, epoch: int) -> None: ...

    async def follow(self, master: act.Follow) -> None: ...

    async def step_down(self, reason: str) -> None: ...

    async def unrelated(self, reason: str) -> None: ...

    def tables(self) -> bytes: ...

    async def replace_tables(self, body: bytes) -> None: ...


class FencedReplica:
    """Belongs to one event loop. `gate` releases answers; the store's confirm offset limits readers."""

    def __init__(
        self,
        replica: FencedStore,
        settings: AgentSettings,
        control: ControlStore,
        clock: Clock,
        roles: RoleListener,
        *,
        answer_timeout_ms: int = ANSWER_TIMEOUT_MS,
        secret: bytes | None = None,
        tls: tuple[ssl.SSLContext, ssl.SSLContext] | None = None,
    ) -> None:
        """`secret` overrides the one in the control store; `tls`: contexts of server and client."""
        for step in recover(replica):
            log.debug("recovery of the replica: %s", step)
        self.replica = replica
        if secret is None and not settings.new_secret:
            settings = dataclasses.replace(settings, new_secret=os.urandom(32))
        settings = dataclasses.replace(settings, boot_id=settings.boot_id or boot_id())
        self.agent = Agent(settings, replica.load_state(), replica.ends)
        self._secret = secret
        server_tls, client_tls = tls or (None, None)
        self.listener = FencedListener(replica, clock, self, encode_tables=roles.tables, tls=server_tls)
        self.follower = Follower(replica, clock, self._introduction, self._credentials, self, tls=client_tls)
        self._control = control
        self._clock = clock
        self._roles = roles
        self._answer_timeout_ms = answer_timeout_ms
        self._group = Group(self.agent.state.cluster, self.agent.state.broker_name)
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._queue: asyncio.Queue[act.Action] = asyncio.Queue()
        self._role_changes: asyncio.Queue[act.Action] = asyncio.Queue()
        self._holding = self._woken = False
        self._seen_standing = self._standing
        self._is_unreadable = self._probing = False
        self._confirmed = replica.log_start
        self.stopped = asyncio.Event()
        self.failed = False
        self.gate = self._new_gate()
        self.unrelated: str | None = None
        """Why this replica's log has no common epoch with the master's, if so."""

    # lifecycle

    async def start(self, host: str, port: int) -> None:
        store = self.replica.store
        store.reject_appends("this replica is not the master")
        store.wait_for_replicas(self.gate)
        store.confirm(self._confirmed)  # no confirm offset is known yet
        await self.listener.start(host, port)
        store.add_append_listener(self._grown)
        store.keep_log_from(self._needed_from)
        self._spawn(self._work(self._queue))
        self._spawn(self._work(self._role_changes))  # role changes take time; lease renewal must not wait for them
        self._spawn(self._ticking())
        self._spawn(self._watch())

    async def stop(self, *, cleanly: bool = True) -> None:
        """Stop; a clean stop of a master first waits for the in-sync slaves and hands over."""
        if cleanly and not self.stopped.is_set():
            self._put(self.agent.on_stop(self._now_ms()))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.agent.settings.retire_ms_max / 1000 + 3):
                    await self.stopped.wait()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.follower.stop()
        await self.listener.stop()
        self.gate.shut()
        await self._control.close()

    def switch(self, preferred_id: int) -> None:
        """Hand over to another replica; ChangeRejectedError when that is not possible."""
        self._put(self.agent.on_switch(preferred_id, self._now_ms()))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now_ms(self) -> int:
        return self._clock.monotonic_ms()

    def _introduction(self) -> Introduction:
        state = self.agent.state
        return Introduction(
            state.cluster,
            state.broker_name,
            state.broker_id,
            state.check_code,
            self.replica.store.config.segment_bytes,
            self.replica.shape,
        )

    def _credentials(self) -> Credentials | None:
        view = self.agent.view
        secret = self._secret or (view.secret.value if view.secret is not None else None)
        if secret is None:
            return None
        return Credentials(secret, {number: each.value.check_code for number, each in view.replicas.items()})

    async def _ticking(self) -> None:
        while not self.failed:
            try:
                self._put(self.agent.on_tick(self._now_ms()))
                self.listener.tick()
                self._watch_surroundings()
                self.replica.drop_deleted_epochs()
                if self.replica.store.failure is not None:
                    self._fail(self.replica.store.failure)
            except Exception:  # the replica continues after a failed tick
                log.exception("tick of the replica failed")
            await asyncio.sleep(TICK_MS / 1000)

    def _watch_surroundings(self) -> None:
        """Tell the agent about the disk, and about a master that is not heard any more."""
        now_ms, followed = self._now_ms(), self.follower.followed
        has_room = self.replica.store.disk_full is None
        self.agent.on_room(has_room, now_ms)
        if has_room:
            self.replica.keep_reserve()
        if followed is None or now_ms - self.follower.heard_ms <= QUIET_MS:
            self.agent.on_isolation(0, frozenset())
        elif not self._probing:
            self._probing = True
            self._spawn(self._probe(followed))

    async def _probe(self, followed: act.Follow) -> None:
        """Which other replicas can be reached, while the master cannot."""
        others = {
            number: each.value.ha_addr
            for number, each in self.agent.view.alive.items()
            if number not in (self.agent.broker_id, followed.master_id)
        }
        try:
            found = await asyncio.gather(*(can_connect(addr) for addr in others.values()))
            if self.follower.followed is followed and self._now_ms() - self.follower.heard_ms > QUIET_MS:
                reached = frozenset(number for number, is_reached in zip(others, found, strict=True) if is_reached)
                self.agent.on_isolation(followed.epoch, reached)
            await asyncio.sleep(PROBE_MS / 1000)
        finally:
            self._probing = False

    def master_heard(self) -> None:
        self.agent.on_master_heard()

    def master_dead(self, epoch: int) -> None:
        self._put(self.agent.on_master_dead(epoch, self._now_ms()))

    async def _watch(self) -> None:
        while True:
            try:
                if await self._control.wait_for_change(self._group, self.agent.view.revision, WATCH_MS):
                    self._put(self.agent.on_changed(self._now_ms()))
                    await asyncio.sleep(0.05)  # until the read returns a newer revision
            except ControlError:
                await asyncio.sleep(0.5)  # periodic reads continue

    def _needed_from(self) -> int | None:
        """Log offset from which retention must keep files: what members of the in-sync set have not copied, and
        everything while the lease is invalid. Called by another thread."""
        term = self.agent.term
        if term is None:
            return None
        if not self.agent.has_lease(self._now_ms()):
            return 0
        followers = [follower.written for member, follower in list(term.followers.items()) if member in term.in_sync]
        return min(followers, default=None)

    # actions of the agent

    def _put(self, actions: list[act.Action]) -> None:
        """Queue actions for the worker task, which executes them in order. Persist and StepDown take effect here."""
        for action in actions:
            if self.failed:
                return
            if isinstance(action, act.Persist):
                self._persist(action)
            elif isinstance(action, act.StepDown):
                self._stop_leading(action.reason)
            self._queue.put_nowait(action)
        if self._standing != self._seen_standing:
            self._seen_standing = self._standing
            self.replica.store.generation.bump()
        self.publish()

    @property
    def _standing(self) -> tuple[object, ...]:
        """What decides whether a master may serve, besides the end of its lease."""
        agent = self.agent
        return agent.role, agent.lease is None, agent.handing_over

    def _persist(self, action: act.Persist) -> None:
        """Persist before acting; a replica that cannot persist fails."""
        try:
            self.replica.see(action.broker_id, action.epoch)
        except OSError as error:
            self._fail(f"cannot write haState: {error}")

    def _fail(self, reason: str) -> None:
        """Disable this replica after a disk error: it stops answering, its lease expires and another one is elected."""
        if self.failed:
            return
        self.failed = True
        log.critical(
            "replica %d disabled after a disk error; fix the cause and restart: %s", self.agent.broker_id, reason
        )
        self.replica.store.reject_appends(f"this replica is disabled: {reason}")
        self._stop_leading(reason)
        self._spawn(self.follower.stop())
        if self.agent.lease is not None:
            self._spawn(self._revoke(self.agent.lease.id))

    async def _work(self, queue: asyncio.Queue[act.Action]) -> None:
        while True:
            action = await queue.get()
            try:
                await (self._act(action) if queue is self._queue else self._notify_broker(action))
            except Exception:  # the replica continues after a failed action
                log.exception("action of the replica failed: %s", action)

    async def _act(self, action: act.Action) -> None:
        match action:
            case act.Read(number):
                self._spawn(self._read(number))
            case act.Commit():
                self._spawn(self._commit(action))
            case act.Grant(ttl_ms):
                self._spawn(self._grant(ttl_ms))
            case act.KeepAlive(lease_id):
                self._spawn(self._keep_alive(lease_id))
            case act.Revoke(lease_id):
                await self._revoke(lease_id)
            case act.Follow():
                log.info(
                    "replica %d follows master %d of epoch %d", self.agent.broker_id, action.master_id, action.epoch
                )
                await self.follower.follow(action)
                self._role_changes.put_nowait(action)
            case act.StopFollowing():
                await self.follower.stop()
            case act.Promote(epoch):
                await self._promote(epoch)
            case act.Lead() | act.StepDown():
                self._role_changes.put_nowait(action)
            case act.Stopped():
                self.stopped.set()

    async def _notify_broker(self, action: act.Action) -> None:
        match action:
            case act.Follow():
                await self._roles.follow(action)
            case act.Lead(epoch):
                await self._roles.lead(epoch)
            case act.StepDown(reason):
                await self._roles.step_down(reason)
            case act.Unrelated(reason):
                await self._roles.unrelated(reason)

    async def _promote(self, epoch: int) -> None:
        if self.agent.role is not Role.PROMOTING:
            return
        self.replica.begin_change()
        try:
            await asyncio.to_thread(lambda: list(promote(self.replica, epoch)))
        except Exception as error:  # after any error another replica must be able to take over
            log.exception("replica %d could not be promoted", self.agent.broker_id)
            self._put(self.agent.on_promotion_failed(str(error), self._now_ms()))
            return
        finally:
            self.replica.end_change()
        actions = self.agent.on_promoted(epoch, self.replica.ends, self._now_ms())
        if self.agent.term is not None:
            log.info(
                "replica %d is master of epoch %d from log offset %d", self.agent.broker_id, epoch, self.replica.log_end
            )
            self.gate = self._new_gate()
            self.replica.store.wait_for_replicas(self.gate)
            self.listener.lead(
                Mastership(epoch, self._introduction(), lambda: self.agent.confirm_offset or 0, self._credentials)
            )
            self.listener.tables.begin(self._slaves_that_count)
        self._put(actions)

    def _stop_leading(self, reason: str) -> None:
        log.warning("replica %d is no longer master: %s", self.agent.broker_id, reason)
        self.listener.end_mastership()
        self.gate.shut()  # waiting sends get FLUSH_SLAVE_TIMEOUT

    def _new_gate(self) -> ReplicaGate:
        return ReplicaGate(lambda log_end: True, lambda: self._answer_timeout_ms)

    # the control store

    async def _read(self, number: int) -> None:
        try:
            view = await self._control.read(self._group)
        except RocketQError as error:
            if not self._is_unreadable:
                log.warning("control store unavailable, retrying: %s", error)
            self._is_unreadable = True
            self._put(self.agent.on_read_failed(number, self._now_ms()))
        else:
            if self._is_unreadable:
                log.warning("control store available again")
            self._is_unreadable = False
            before = self.agent.term.in_sync if self.agent.term else None
            self._put(self.agent.on_view(number, view, self._now_ms()))
            self._log_in_sync(before)

    def _log_in_sync(self, before: frozenset[int] | None) -> None:
        term = self.agent.term
        if term is not None and before is not None and term.in_sync != before:
            now, was = (", ".join(map(str, sorted(members))) for members in (term.in_sync, before))
            level = logging.WARNING if before - term.in_sync else logging.INFO
            log.log(level, "master %d of epoch %d: in-sync set is %s, was %s", term.broker_id, term.epoch, now, was)

    async def _commit(self, action: act.Commit) -> None:
        try:
            revision = await self._control.commit(self._group, action.change)
        except LeaseLostError:
            self._put(self.agent.on_committed(action.number, None, self._now_ms()))
        except RocketQError as error:
            log.info("%s: %s", action.purpose.value, error)
            self._put(self.agent.on_commit_unknown(action.number, self._now_ms()))
        else:
            self._put(self.agent.on_committed(action.number, revision, self._now_ms()))

    async def _revoke(self, lease_id: int) -> None:
        with contextlib.suppress(ControlError):
            await self._control.revoke(lease_id)

    async def _grant(self, ttl_ms: int) -> None:
        sent_ms = self._now_ms()
        try:
            lease_id = await self._control.grant(ttl_ms)
        except RocketQError:
            self._put(self.agent.on_grant_failed(self._now_ms()))
        else:
            self._put(self.agent.on_granted(lease_id, sent_ms))

    async def _keep_alive(self, lease_id: int) -> None:
        sent_ms = self._now_ms()
        try:
            await self._control.keep_alive(lease_id)
        except LeaseLostError:
            self._put(self.agent.on_lease_lost(lease_id, self._now_ms()))
        except RocketQError:
            return  # without an answer the lease expires
        else:
            self._put(self.agent.on_kept_alive(lease_id, sent_ms))

    # the log and the streams

    def _grown(self) -> None:
        """The log may have new bytes. Called on any thread."""
        if not self._woken:
            self._woken = True
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self.log_changed)

    def log_changed(self) -> None:
        self._woken = False
        ends = self.replica.ends
        self.agent.on_log(ends)
        if ends.durable < ends.written and not self._holding:
            self._holding = True
            self.replica.store.gate.hold(ends.written, self._flushed)
        self.listener.feed()
        self.publish()

    def _flushed(self, reached: bool) -> None:
        self._holding = False
        self._grown()

    def slave_acked(self, ack: Acked) -> None:
        mastership = self.listener.mastership
        if mastership is not None:
            now_ms, epoch = self._now_ms(), mastership.epoch
            actions = self.agent.on_ack(ack.broker_id, epoch, ack.written, ack.durable, now_ms, learner=ack.learner)
            if actions:
                self._put(actions)
            else:
                self.publish()

    def slave_gone(self, broker_id: int) -> None:
        self.agent.on_slave_gone(broker_id, self._now_ms())
        self.listener.tables.release_waiters()

    def _slaves_that_count(self) -> frozenset[int]:
        term = self.agent.term
        return term.possible_members - {self.agent.broker_id} if term is not None else frozenset()

    def tables_changed(self) -> None:
        """Topics or groups changed: send them to the slaves."""
        if self.listener.mastership is not None:
            self.listener.tables.shares.changed()
            self._loop.call_soon(self.listener.share_tables)  # once for all changes of a request

    async def tables_shared(self) -> None:
        """Return when every replica that can be elected has stored all changes so far; StoreError after the timeout."""
        await self.listener.tables.wait(self._answer_timeout_ms)

    async def replace_tables(self, body: bytes) -> None:
        await self._roles.replace_tables(body)

    def control_outdated(self) -> None:
        self._put(self.agent.on_outdated(self._now_ms()))

    def confirmed_to(self, offset: int) -> None:
        """The master sent this confirm offset to its slave."""
        if offset > self._confirmed:
            self._confirmed = offset
            self.replica.store.confirm(offset)

    def left(self, leave: Leave) -> None:
        if leave.unrelated and self.unrelated != leave.reason:
            self._role_changes.put_nowait(act.Unrelated(leave.reason))
        self.unrelated = leave.reason if leave.unrelated else None
        if leave.reread:
            self._put(self.agent.on_changed(self._now_ms()))

    def publish(self) -> None:
        """Apply what the agent allows now to readers, held answers and appends."""
        now_ms, store = self._now_ms(), self.replica.store
        if self.failed:
            return
        store.reject_appends(self.agent.may_write(now_ms))
        self.listener.tables.release_waiters()
        confirm = self.agent.confirm_offset
        if confirm is not None and confirm > self._confirmed:
            self._confirmed = confirm
            store.confirm(confirm)
        answerable = self.agent.answerable_to(now_ms)
        if answerable > self.gate.position:
            self.gate.release(answerable)


def boot_id() -> str:
    """Identifies the boot of this machine; empty where the system has no such file."""
    try:
        return BOOT_ID_PATH.read_text().strip()
    except OSError:
        return ""
