"""The feed of a broker's ports: sends and pulls that are plain are served by the kernel, the rest by the handlers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rocketq.broker.consumer_offsets import OffsetTable, PullPositions
from rocketq.broker.figures import Figures
from rocketq.broker.hot_answers import AnswerGate
from rocketq.broker.hot_routes import Routes
from rocketq.broker.hot_templates import pull_templates, send_templates
from rocketq.broker.safety import must_wait
from rocketq.errors import RemoteProtocolError
from rocketq.kernel.hot_frames import HotFrames
from rocketq.kernel.pull_frames import PullFrames, PullLimits, PullRoute
from rocketq.kernel.send_frames import SendFrames
from rocketq.model import Host
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Perm
from rocketq.protocol.frame import FRAME_BYTES_MAX, FrameDecoder
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Connection, Dispatcher
from rocketq.runtime.clock import Clock

REST_BYTES_MAX: Final = 64 << 10  # longer unfinished frames are the decoder's, so that they are copied once
_HEAD_BYTES_MAX: Final = 4 << 10  # of an answer with records


@dataclass(slots=True)
class _State:
    """What a connection's feed remembers between reads: bytes it has not looked at, from `at` on."""

    decoder: FrameDecoder
    born_host: bytes
    data: bytes = b""
    at: int = 0
    decoding: bool = False
    """What comes next is the decoder's: it has the start of a frame, or has failed."""

    def take(self, more: bytes) -> bytes:
        """All that was not looked at yet."""
        rest, self.data, self.at = self.data[self.at :] + more, b"", 0
        return rest

    @property
    def rest_bytes(self) -> int:
        return len(self.data) - self.at


@dataclass(frozen=True, slots=True)
class HotPorts:
    routes: Routes
    offsets: OffsetTable
    positions: PullPositions
    figures: Figures
    clock: Clock
    waiting: Callable[[], bool] = lambda: True
    """Whether anybody wants to hear of new messages at once."""


class HotFeed:
    """Decides when the kernel may serve, counts and announces what it did, and keeps its routes in step."""

    def __init__(self, ports: HotPorts, dispatcher: Dispatcher) -> None:
        self._ports = ports
        self._routes = ports.routes
        self._store = ports.routes.store
        self._writer, self._flusher = self._store.writer, self._store.flusher
        self._log_files = self._store.log.files
        self._now_ms = ports.clock.now_ms
        self._dispatcher = dispatcher
        self._serves_pulls = RequestCode.PULL_MESSAGE in dispatcher.codes
        self._gate = AnswerGate(self._store, ports.clock, dispatcher)
        self._frames = self._make_frames()
        self._sends, self._pulls = self._frames.sends, self._frames.pulls
        self._topics_version: object = None
        self._queues_removed = 0
        self._broker_config: object = None
        self._store_config: object = None
        self._replica_gate: object = None
        self._may_pull = self._may_send = False
        self._accept_sends_from_ms = 0
        self._loop = asyncio.get_running_loop()
        self._settling = self._stored = False

    @property
    def taken(self) -> int:
        """How many messages the kernel has stored by itself."""
        return int(self._frames.sends.taken)

    @property
    def pulls_taken(self) -> int:
        """How many pulls the kernel has answered by itself."""
        return int(self._frames.pulls.taken)

    def __call__(self, connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
        state: _State | None = connection.feed_state
        if state is None:
            state = connection.feed_state = _begin(connection)
        now_ms = self._now_ms()
        if state.decoding or connection.writes_paused or not self._open(connection, now_ms):
            return b"", self._feed_decoder(connection, state, data)
        if data:
            state.data, state.at = state.take(data) if state.data else data, 0
        out, held, held_count, log_end = self._run(state, now_ms)
        if held_count:
            self._gate.hold(connection, held, held_count, log_end)
        commands: Sequence[Command] = ()
        if state.at < len(state.data) or self._frames.cold_at >= 0:  # hardly ever
            commands = self._feed_rest(connection, state)
        else:
            state.data, state.at = b"", 0
            if connection.unfinished_bytes:
                connection.hold(0)
        return out, commands

    def _feed_decoder(self, connection: Connection, state: _State, data: bytes) -> Sequence[Command]:
        """Nothing of this read is for the kernel; not yet, when the peer is behind with reading."""
        commands: Sequence[Command] = ()
        if state.decoder.failure is not None:
            raise state.decoder.failure
        if connection.writes_paused:
            state.data = state.take(data)
            connection.feed_waits = True
        else:
            commands = self._decode(connection, state, state.take(data))
        self._hold_unfinished(connection, state)
        return commands

    def _feed_rest(self, connection: Connection, state: _State) -> Sequence[Command]:
        """The kernel has stopped at a frame that is not for it, or at one that is not whole."""
        frames, commands = self._frames, list[Command]()
        if frames.cold_at >= 0:
            commands = self._decode(connection, state, state.data[frames.cold_at : state.at])
        connection.feed_waits = state.rest_bytes > 0 and (frames.stopped or frames.cold_at >= 0)
        if not connection.feed_waits:
            state.data = state.take(b"")  # of a read that is done with, nothing is kept but an unfinished frame
            if len(state.data) > REST_BYTES_MAX:
                commands += self._decode(connection, state, state.take(b""))
        self._hold_unfinished(connection, state)
        return commands

    def _hold_unfinished(self, connection: Connection, state: _State) -> None:
        unfinished = state.rest_bytes + state.decoder.pending_bytes
        if unfinished != connection.unfinished_bytes:
            connection.hold(unfinished)

    def _open(self, connection: Connection, now_ms: int) -> bool:
        """Whether anything may be served without asking anybody; what, the kernel is told."""
        dispatcher, store, sends = self._dispatcher, self._store, self._sends
        health = store.health
        refused = health.refusal is not None
        if dispatcher.guards or dispatcher.hooks or connection.is_draining or (refused and health.closed is not None):
            return False
        if (
            self._broker_config is not self._routes.settings.config
            or self._store_config is not store.config
            or self._replica_gate is not store.replica_gate
        ):
            self._configure()
        self._pulls.open = self._may_pull
        sends.open = opens = self._may_send and not refused and now_ms >= self._accept_sends_from_ms
        if sends.durable:
            sends.held_max = dispatcher.room
        return opens or self._may_pull

    def _run(self, state: _State, now_ms: int) -> tuple[bytes, bytes, int, int]:
        """One call of the kernel: answers, answers that wait and how many those are, and the log's end."""
        writer, sends = self._writer, self._sends
        held, held_count = b"", 0
        with writer.lock:
            frames = self._current_frames()
            before = sends.taken
            try:
                state.at = frames.feed(state.data, state.at, state.born_host, now_ms)
            finally:  # whatever happens, nobody else may get these answers
                out = sends.out.take()
                if sends.held_count:
                    held, held_count = sends.take_held()
                if sends.taken > before:
                    self._stored = True
                    writer.stored_by_kernel()
            log_end = sends.appender.end
        if not self._settling and (self._pulls.served or (self._stored and self._is_awaited())):
            self._settling = True
            self._loop.call_soon(self._settle)
        if sends.missed or self._pulls.missed:
            self._find_routes(frames)
        return out, held, held_count, log_end

    def _decode(self, connection: Connection, state: _State, data: bytes) -> list[Command]:
        """What was answered before bytes that are no frame is sent before the connection ends; nothing after them is
        looked at."""
        commands: list[Command] = []
        with contextlib.suppress(RemoteProtocolError):
            commands = state.decoder.feed(data)
        if state.decoder.failure is not None:
            state.take(b"")
            connection.finish(str(state.decoder.failure))
        state.decoding = state.decoder.pending_bytes > 0 or state.decoder.failure is not None
        if commands:
            self.count()
        return commands

    # What the kernel did

    def _is_awaited(self) -> bool:
        """Whether what is stored must be told at once. Who begins to wait later looks for itself, and the flusher tells
        from time to time whatever was not told."""
        return self._sends.durable or bool(self._flusher.append_listeners) or self._ports.waiting()

    def _settle(self) -> None:
        """Once in a turn of the loop, whatever many reads brought."""
        self._settling = False
        if self._stored and self._is_awaited():
            self._stored = False
            self._flusher.appended()
        for route in self._pulls.served:
            self._settle_pulls(route)
        self._pulls.served.clear()

    def count(self) -> None:
        """Have in the figures what was stored since the last time: before a handler may look at them, and every second.
        With very many topics nearly every message is of another one."""
        for route in self._sends.grown:
            self._ports.figures.stored(route.topic.decode(), route.count, route.size_bytes, 0, route.times)
            route.count = route.size_bytes = route.times = 0
            route.noted = False
        self._sends.grown.clear()

    def _settle_pulls(self, route: PullRoute) -> None:
        ports, wanted = self._ports, route.owner
        ports.figures.pulled(wanted.topic, wanted.group, route.count, route.size_bytes, 0, route.times)
        for queue_id, offset in route.positions.items():
            ports.positions.put(wanted.group, wanted.topic, queue_id, offset)
        commits = {} if self._routes.settings.config.is_slave else route.commits
        for queue_id, offset in commits.items():
            ports.offsets.commit(wanted.group, wanted.topic, queue_id, offset)
        route.positions.clear()
        route.commits.clear()
        route.count = route.size_bytes = route.times = 0
        route.noted = False

    def _find_routes(self, frames: HotFrames) -> None:
        """For what had none, from the next time on."""
        sends, pulls, routes = frames.sends, frames.pulls, self._routes
        for topic, queue_id in dict.fromkeys(sends.missed):
            known = sends.route_of(topic)
            if known is not None and queue_id >= 0:
                known.queues[queue_id] = routes.tail(topic.decode(), queue_id)
            elif known is None and (fresh := routes.for_sends(topic)) is not None:
                sends.add_route(fresh)
        for key, queue_id in dict.fromkeys(pulls.missed):
            if queue_id >= 0:
                key.queues[queue_id] = routes.tail(key.owner.topic, queue_id)
            elif (route := routes.for_pulls(key)) is not None:
                pulls.add_route(route)
        sends.missed.clear()
        pulls.missed.clear()

    # What the kernel is told

    def _make_frames(self) -> HotFrames:
        store, config = self._store, self._routes.settings.config
        host_hex = store.config.store_host.packed().hex().upper().encode()
        sends = SendFrames(store.log.appender, None, host_hex, config.cluster.encode(), V5_0_0)
        pulls = PullFrames(
            sends.out,
            store.log.map,
            lambda: store.visible_to,
            pull_templates(),
            V5_0_0,
            FRAME_BYTES_MAX - _HEAD_BYTES_MAX,
        )
        return HotFrames(sends, pulls, FRAME_BYTES_MAX)

    def _current_frames(self) -> HotFrames:
        """The kernel's part, with nothing in it that has changed since."""
        frames, version, removed = self._frames, self._routes.topics.data_version, self._store.queues.removed_count
        if version is not self._topics_version or removed != self._queues_removed:
            self._topics_version, self._queues_removed = version, removed
            frames.sends.clear_routes()
            frames.pulls.clear_routes()
        if self._store_config is not self._store.config or self._replica_gate is not self._store.replica_gate:
            self._configure()
        if self._store.health.closed is not None:  # by another thread, while this one waited for the lock
            frames.sends.open = frames.pulls.open = False
        first = self._log_files.first
        frames.pulls.gone_until = self._store.log_end if first is None else first
        return frames

    def _configure(self) -> None:
        """Settings of the broker or its store, or who an answer waits for, are others than before."""
        frames, config, store = self._frames, self._routes.settings.config, self._store.config
        self._broker_config, self._store_config, self._replica_gate = config, store, self._store.replica_gate
        self._may_pull = self._serves_pulls and bool(config.perm & Perm.READ) and not config.cold_flow_control
        self._may_send = bool(config.perm & Perm.WRITE and config.cluster) and not config.is_slave
        self._accept_sends_from_ms = config.accept_sends_from_ms
        frames.sends.set_templates(send_templates(config.region, config.trace_on))
        frames.sends.durable = must_wait(self._store)
        frames.sends.indexed = store.index_enabled
        frames.sends.body_bytes_max = store.message_bytes_max
        frames.pulls.limits = PullLimits(
            count_max=store.memory_read_count_max,
            bytes_max=store.memory_read_bytes_max,
            disk_count_max=store.disk_read_count_max,
            disk_bytes_max=store.disk_read_bytes_max,
            asked_count_max=config.pull_count_max,
            asked_bytes_max=config.pull_bytes_max,
            memory_bytes=self._store.queries.memory_bytes,
            check_crc=store.check_crc_on_read,
        )


def _begin(connection: Connection) -> _State:
    host = Host.of(connection.peer_host, connection.peer_port)
    return _State(FrameDecoder(connection.limits.frame_bytes_max), host.packed())
