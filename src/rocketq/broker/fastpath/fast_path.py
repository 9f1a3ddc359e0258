"""The fast path of a broker's port: the kernel executes plain sends and pulls, handlers everything else."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rocketq.broker.fastpath.grants import GrantFactory, PullKey, SendKey
from rocketq.broker.fastpath.held_answers import AnswerGate
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.ha.durability import must_wait
from rocketq.broker.pipeline.admission import AdmissionTables
from rocketq.broker.pipeline.answer_templates import pull_templates, send_templates
from rocketq.broker.stats.broker_metrics import DELAY, NORMAL
from rocketq.broker.stats.broker_stats import BrokerStats
from rocketq.errors import RemoteProtocolError
from rocketq.kernel.admission import PullGrant
from rocketq.kernel.fast_frames import FastFrames
from rocketq.kernel.fast_path import NEVER_NS, FastConnection, FastPath
from rocketq.kernel.fast_pulls import FastPulls, PullLimits
from rocketq.kernel.fast_sends import NOT_A_QUEUE, FastSends
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Perm
from rocketq.protocol.frame import FRAME_BYTES_MAX, FrameDecoder, command_of
from rocketq.protocol.names import SCHEDULE_TOPIC
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Connection, Dispatcher
from rocketq.runtime.clock import Clock, SystemClock
from rocketq.store import Store

REST_BYTES_MAX: Final = 64 << 10  # longer unfinished frames go to the decoder, which copies them once
_HEAD_BYTES_MAX: Final = 4 << 10  # of an answer with records
_DIGITS_MAX: Final = 9  # of a queue's number
_TRIES_MAX: Final = 100  # rejected frames per read that the kernel executes after a grant was made
_DELAY_TOPIC: Final = SCHEDULE_TOPIC.encode()
PULL_CODES: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
FAST_CODES: Final = PULL_CODES | {
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
}
_connection_numbers = itertools.count(1)


class Lease(Protocol):
    """The lease of a fenced master."""

    def valid_to_ms(self) -> int:
        """End of the lease on the monotonic clock; 0 if it is not valid now."""
        ...


@dataclass(frozen=True, slots=True)
class FastPathPorts:
    tables: AdmissionTables
    store: Store
    offsets: OffsetTable
    positions: PullPositions
    stats: BrokerStats
    clock: Clock
    collect_all: Callable[[], None]
    """Collects the stats and offsets of the fast paths of all ports."""
    lease: Lease | None = None
    """None: no lease is needed."""
    is_guarded: Callable[[], bool] = lambda: False
    """Whether the checks before every handler may differ between connections."""
    waiting: Callable[[], bool] = lambda: True
    """Whether anything waits for new messages (held pulls)."""


class BrokerFastPath:
    """Decides when the kernel may execute requests, makes its grants, and collects and announces its results."""

    def __init__(self, ports: FastPathPorts, dispatcher: Dispatcher) -> None:
        self._ports = ports
        self._settings = ports.tables.settings
        self._store = ports.store
        self._internals = ports.store.fast_path_access()
        self._grants = GrantFactory(ports.tables, self._internals.queues, len(ports.store.config.delays_ms))
        self._dispatcher = dispatcher
        self._serves_pulls = RequestCode.PULL_MESSAGE in dispatcher.codes
        self._gate = AnswerGate(self._store, ports.clock, dispatcher, ports.stats.metrics.answered_after_waiting)
        self._frames = self._make_frames()
        self._sends, self._pulls = self._frames.sends, self._frames.pulls
        self._loop = asyncio.get_running_loop()
        self._path = FastPath(
            self._frames,
            self._internals.generation,
            self._internals,
            dispatcher,
            (_now_ns(ports.clock), _monotonic_ns(ports.clock)),
            self._loop.call_soon,
            self._finish_turn,
            ports.waiting,
        )
        self._internals.announce_while(ports.waiting)
        self._templates = send_templates(self._settings.config.region, self._settings.config.trace_on)
        self._refreshed = 0
        self._queues_removed = 0
        self._configured: tuple[object, object, object] = (None, None, None)
        self._may_send = False

    @property
    def taken(self) -> int:
        """Messages stored by the kernel."""
        return self._frames.sends.taken

    @property
    def pulls_taken(self) -> int:
        """Pulls answered by the kernel."""
        return self._frames.pulls.taken

    @property
    def waiting_answers(self) -> int:
        """Requests whose answers wait for the disk or a slave."""
        return len(self._gate)

    def __call__(self, connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
        fast: FastConnection | None = connection.reader_state
        if fast is None:
            fast = connection.reader_state = self._begin(connection)
        if fast.served_to >= 0:
            fast.data, fast.at, fast.served_to = data, fast.served_to, -1
            out: bytes | None = self._sends.out.take()
        else:
            out = None if fast.decoding or connection.writes_paused else self._run(connection, fast, data)
        if out is None:
            return b"", self._feed_decoder(connection, fast, data)
        commands: Sequence[Command] = ()
        tries = _TRIES_MAX
        while self._frames.slow_at >= 0:
            tries -= 1
            command = self._refused_command(fast)
            if command is None or not tries or not self._admits_now(connection, command):
                commands = self._slow_commands(connection, fast, command)
                break
            fast.at = self._frames.slow_at
            with self._internals.lock:
                out += self._path.serve_rest(fast)
        if fast.at < len(fast.data) or self._frames.slow_at >= 0:  # rare
            commands = self._keep_rest(connection, fast, commands)
        else:
            fast.data, fast.at = b"", 0
            if connection.unfinished_bytes:
                connection.set_unfinished_bytes(0)
        return out, commands

    def _begin(self, connection: Connection) -> FastConnection:
        limits = connection.limits
        decoder = FrameDecoder(limits.frame_bytes_max, limits.header_bytes_max)
        fast = FastConnection(self._path, connection, decoder, connection.peer.packed(), next(_connection_numbers))
        connection.install_front(fast)
        return fast

    def _run(self, connection: Connection, fast: FastConnection, data: bytes) -> bytes | None:
        """Call the kernel once; returns the answers that can be sent now, or None if it may not execute anything."""
        path = self._path
        with self._internals.lock:
            if not path.is_allowed():
                self._refresh(connection)
                if not path.is_allowed():
                    return None
            if data:
                fast.data, fast.at = fast.take(data) if fast.data else data, 0
            return path.serve_rest(fast)

    # frames for the slow path

    def _refused_command(self, fast: FastConnection) -> Command | None:
        """The rejected frame as a command; None if the kernel could not parse it."""
        parts = self._frames.refused_parts(fast.data)
        return None if parts is None else command_of(parts)

    def _slow_commands(self, connection: Connection, fast: FastConnection, command: Command | None) -> list[Command]:
        self._ports.stats.metrics.left_to_python(self._reason(command))
        if command is None:
            return self._decode(connection, fast, fast.data[self._frames.slow_at : fast.at])
        self._collect_before_handlers()
        return [command]

    def _reason(self, command: Command | None) -> str:
        """Why the kernel left a frame to Python, for metrics."""
        if command is None:
            return "malformed"
        if command.code not in FAST_CODES:
            return "not_hot"
        if self._sends.missed or self._pulls.missed:
            return "no_grant"
        if self._sends.short_of_room:
            return "file_roll"
        return "nothing_found" if command.code in PULL_CODES else "property"

    def _keep_rest(
        self, connection: Connection, fast: FastConnection, commands: Sequence[Command]
    ) -> Sequence[Command]:
        """The kernel stopped before the end of the read: at a frame for the slow path, or an incomplete one."""
        frames = self._frames
        connection.has_unread_frames = fast.rest_bytes > 0 and (frames.stopped or frames.slow_at >= 0)
        if not connection.has_unread_frames:
            fast.data = fast.take(b"")  # keep only an unfinished frame of an executed read
            if len(fast.data) > REST_BYTES_MAX:
                commands = [*commands, *self._decode(connection, fast, fast.take(b""))]
        self._hold_unfinished(connection, fast)
        return commands

    def _feed_decoder(self, connection: Connection, fast: FastConnection, data: bytes) -> Sequence[Command]:
        """Decode a read that the kernel may not execute; keep it while the peer does not read its answers."""
        commands: Sequence[Command] = ()
        if fast.decoder.failure is not None:
            raise RemoteProtocolError(str(fast.decoder.failure))
        if connection.writes_paused:
            fast.data = fast.take(data)
            connection.has_unread_frames = True
        else:
            commands = self._decode(connection, fast, fast.take(data))
        self._hold_unfinished(connection, fast)
        return commands

    def _decode(self, connection: Connection, fast: FastConnection, data: bytes) -> list[Command]:
        """Decode frames. At an invalid frame the answers so far are sent, and the connection ends."""
        commands: list[Command] = []
        with contextlib.suppress(RemoteProtocolError):
            commands = fast.decoder.feed(data)
        if fast.decoder.failure is not None:
            fast.take(b"")
            connection.close_after_read(str(fast.decoder.failure))
        fast.decoding = fast.decoder.pending_bytes > 0 or fast.decoder.failure is not None
        if commands:
            self._collect_before_handlers()
        return commands

    def _hold_unfinished(self, connection: Connection, fast: FastConnection) -> None:
        unfinished = fast.rest_bytes + fast.decoder.pending_bytes
        if unfinished != connection.unfinished_bytes:
            connection.set_unfinished_bytes(unfinished)

    # Grants

    def _admits_now(self, connection: Connection, command: Command) -> bool:
        """Make what the rejected frame lacked (a grant, a queue, or room in a queue); returns whether that
        succeeded."""
        sends, pulls = self._sends, self._pulls
        if not (sends.missed or pulls.missed or sends.short_of_room):
            return False
        if not self._path.is_allowed():
            granted = False
        elif sends.missed:
            granted = self._grant_send(connection, command, *sends.missed[-1])
        elif pulls.missed:
            granted = self._grant_pull(connection, command, *pulls.missed[-1])
        else:
            granted = self._has_made_room(command)
        return granted and self._path.is_allowed()  # making a grant may have changed the generation

    def _grant_send(self, connection: Connection, command: Command, key: SendKey, queue_id: int) -> bool:
        before, generation = self._sends.grant_of(key), self._internals.generation.number
        if queue_id < NOT_A_QUEUE:
            return self._grants.find_delay_queue(NOT_A_QUEUE - queue_id)
        if queue_id != NOT_A_QUEUE:
            return before is not None and self._grants.find_queue(before, queue_id)
        now_ms = self._ports.clock.now_ms()
        grant = self._grants.for_sends(key, generation, connection, self._templates, now_ms)
        if grant is None or self._dispatcher.rejection(command, connection) is not None:
            return False
        self._sends.add_grant(grant)
        return True

    def _grant_pull(self, connection: Connection, command: Command, key: PullKey, queue_id: int) -> bool:
        before, generation = self._pulls.grant_of(key), self._internals.generation.number
        if queue_id != NOT_A_QUEUE:
            return before is not None and self._grants.find_queue(before, queue_id)
        now_ms = self._ports.clock.now_ms()
        grant = self._grants.for_pulls(key, generation, connection, now_ms)
        if grant is None or self._dispatcher.rejection(command, connection) is not None:
            return False
        self._pulls.add_grant(grant)
        return True

    def _has_made_room(self, command: Command) -> bool:
        """Reserve blocks for a send whose queue had none left; returns whether there is room now. A handler does that
        too, but if answers wait for the disk it runs after this turn of the loop, and later frames would be slow as
        well."""
        place = _queue_of(command)
        queue = self._internals.queues.get(*place) if place is not None and self._path.may_send else None
        if queue is None:
            return False
        tail, count = queue.tail, self._count_of(command)
        if count <= 0 or tail.next_offset + count <= tail.room_end:
            return False
        try:
            with self._internals.lock:
                queue.make_room(count)
        except OSError:
            return False  # the handler reports the error
        return tail.next_offset + count <= tail.room_end  # otherwise the frame would be retried forever

    def _count_of(self, command: Command) -> int:
        """Number of messages in a send; 0 or less for a malformed batch."""
        if command.code != RequestCode.SEND_BATCH_MESSAGE:
            return 1
        with self._internals.lock:
            count, _ = self._sends.appender.measure_batch(command.body, 0, b"", 0, len(command.body))
        return count

    # results of the kernel

    def _finish_turn(self) -> None:
        """Run once per turn of the loop, for all reads."""
        path = self._path
        path.finishing = False
        self._hold_answers()
        if path.stored and path.has_waiters():
            path.stored = False
            self._internals.appended()

    def _collect_before_handlers(self) -> None:
        """Handlers may use stats and committed offsets, and count requests in progress."""
        self._hold_answers()
        self._ports.collect_all()

    def _hold_answers(self) -> None:
        """Hold this turn's answers that must wait; they count as requests in progress."""
        if self._path.held:
            held, count = self._path.take_held()
            self._gate.hold(held, count, self._sends.appender.end)

    def collect(self) -> None:
        """Add the kernel's results to stats and offsets: before handlers run, every second, and before the last
        save."""
        for grant in self._sends.grown:
            self._ports.stats.stored_by_kernel(grant, DELAY if grant.topic == _DELAY_TOPIC else NORMAL)
        self._sends.grown.clear()
        for served in self._pulls.served:
            self._collect_pulls(served)
        self._pulls.served.clear()
        self._ports.stats.metrics.answered_by_kernel(self._path.collect_times())

    def tick(self) -> None:
        """Run every second: log files may be deleted and pages evicted."""
        self.collect()
        self._find_log_start()
        self.forget_pages()

    def forget_pages(self) -> None:
        self._pulls.forget_pages()

    def _collect_pulls(self, grant: PullGrant) -> None:
        ports, topic, group = self._ports, grant.topic.decode(), grant.group.decode()
        count, size_bytes, times = grant.collect()
        ports.stats.pulled(topic, group, count, size_bytes, 0, times)
        for queue_id, offset in grant.positions.items():
            ports.positions.put(group, topic, queue_id, offset)
        commits = {} if self._settings.config.is_slave else grant.commits
        for queue_id, offset in commits.items():
            ports.offsets.commit(group, topic, queue_id, offset)
        grant.positions.clear()
        grant.commits.clear()

    # permissions of the kernel

    def _make_frames(self) -> FastFrames:
        store = self._store
        host_hex = store.config.store_host.packed().hex().upper().encode()
        sends = FastSends(self._internals.appender, host_hex, V5_0_0)
        pulls = FastPulls(
            sends.out,
            self._internals.log_map,
            lambda: store.visible_to,
            pull_templates(),
            V5_0_0,
            FRAME_BYTES_MAX - _HEAD_BYTES_MAX,
        )
        return FastFrames(sends, pulls, FRAME_BYTES_MAX, self._ports.tables.access.accounts)

    def _refresh(self, connection: Connection) -> None:
        """Apply a new generation: what the kernel may execute from now on. The caller holds the lock."""
        generation = self._internals.generation.number  # read before everything else
        lease = self._ports.lease
        if generation == self._refreshed and lease is None:
            return
        self._refreshed = generation
        lease_to_ns = NEVER_NS if lease is None else min(lease.valid_to_ms() * 1_000_000, NEVER_NS)
        health, removed = self._internals.health, self._internals.queues.removed_count
        if removed != self._queues_removed:
            self._queues_removed = removed
            self._sends.clear_grants()
            self._pulls.clear_grants()
            self._grants.forget_queues()
        self._configure()
        self._find_log_start()
        access = self._ports.tables.access
        self._path.scoped = access.depends_on_connection or self._ports.is_guarded()
        self._path.may_send = self._may_send and health.refusal is None
        serves = (
            health.closed is None
            and not connection.is_draining
            and not self._dispatcher.hooks
            and (self._path.may_send or self._pulls.open)
        )
        self._path.allow(generation if serves else 0, lease_to_ns)

    def _find_log_start(self) -> None:
        """Update the log's start. A read that uses an old value finds no file and goes to the slow path."""
        first = self._internals.first_file()
        self._pulls.gone_until = self._store.log_end if first is None else first

    def _configure(self) -> None:
        """Apply changed settings of broker or store, or a changed replica gate."""
        frames, config, store = self._frames, self._settings.config, self._store.config
        current = (config, store, self._store.replica_gate)
        if all(one is other for one, other in zip(current, self._configured, strict=True)):
            return
        self._configured = current
        may_pull = self._serves_pulls and bool(config.perm & Perm.READ) and not config.cold_flow_control
        self._may_send = bool(config.perm & Perm.WRITE and config.cluster) and not config.is_slave
        self._path.sends_from_ms = config.accept_sends_from_ms
        self._templates = send_templates(config.region, config.trace_on)
        frames.sends.durable = must_wait(self._store)
        frames.sends.indexed = store.index_enabled
        frames.sends.body_bytes_max = store.message_bytes_max
        frames.pulls.open = may_pull
        frames.pulls.limits = PullLimits(
            count_max=store.memory_read_count_max,
            bytes_max=store.memory_read_bytes_max,
            asked_count_max=config.pull_count_max,
            asked_bytes_max=config.pull_bytes_max,
            memory_bytes=self._internals.memory_bytes(),
            check_crc=store.check_crc_on_read,
        )


def _queue_of(command: Command) -> tuple[str, int] | None:
    """Topic and queue of a send."""
    if command.code == RequestCode.SEND_MESSAGE:
        names = ("topic", "queueId")
    elif command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        names = ("b", "e")
    else:
        return None
    topic, queue_id = (command.ext_fields.get(name, "") for name in names)
    return (topic, int(queue_id)) if queue_id.isdecimal() and len(queue_id) <= _DIGITS_MAX else None


def _now_ns(clock: Clock) -> Callable[[], int]:
    """The cheapest clock."""
    return time.time_ns if isinstance(clock, SystemClock) else lambda: clock.now_ms() * 1_000_000


def _monotonic_ns(clock: Clock) -> Callable[[], int]:
    return time.monotonic_ns if isinstance(clock, SystemClock) else lambda: clock.monotonic_ms() * 1_000_000
