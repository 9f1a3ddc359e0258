"""The feed of a broker's ports: sends and pulls that are plain are served by the kernel, the rest by the handlers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from rocketq.broker.fastpath.answer_templates import pull_templates, send_templates
from rocketq.broker.fastpath.held_answers import AnswerGate
from rocketq.broker.fastpath.hot_routes import Routes
from rocketq.broker.groups.offsets import OffsetTable, PullPositions
from rocketq.broker.ha.durability import must_wait
from rocketq.broker.ha.lease_guard import LeaseGuard
from rocketq.broker.stats.broker_stats import Figures
from rocketq.errors import RemoteProtocolError
from rocketq.kernel.hot_frames import HotFrames
from rocketq.kernel.hot_link import HotDesk, HotLink
from rocketq.kernel.pull_frames import PullFrames, PullLimits, PullRoute
from rocketq.kernel.send_frames import SendFrames
from rocketq.model import Host
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Perm
from rocketq.protocol.frame import FRAME_BYTES_MAX, FrameDecoder
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Connection, Dispatcher
from rocketq.runtime.clock import Clock, SystemClock

REST_BYTES_MAX: Final = 64 << 10  # longer unfinished frames are the decoder's, so that they are copied once
_HEAD_BYTES_MAX: Final = 4 << 10  # of an answer with records
_DIGITS_MAX: Final = 9  # of a queue's number


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
        self._dispatcher = dispatcher
        self._serves_pulls = RequestCode.PULL_MESSAGE in dispatcher.codes
        self._gate = AnswerGate(self._store, ports.clock, dispatcher)
        self._frames = self._make_frames()
        self._sends, self._pulls = self._frames.sends, self._frames.pulls
        self._loop = asyncio.get_running_loop()
        self._desk = HotDesk(
            self._frames,
            self._writer,
            dispatcher,
            _now_ns(ports.clock),
            self._loop.call_soon,
            self._settle,
            ports.waiting,
            self._flusher.append_listeners,
        )
        self._monotonic_ns = _monotonic_ns(ports.clock)
        self._flusher.is_awaited = ports.waiting
        self._topics_version: object = None
        self._queues_removed = 0
        self._known: tuple[object, object, object] = (None, None, None)
        self._may_send = False

    @property
    def taken(self) -> int:
        """How many messages the kernel has stored by itself."""
        return int(self._frames.sends.taken)

    @property
    def pulls_taken(self) -> int:
        """How many pulls the kernel has answered by itself."""
        return int(self._frames.pulls.taken)

    def __call__(self, connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
        link: Any = connection.feed_state
        if link is None:
            link = connection.feed_state = self._begin(connection)
        if link.served_to >= 0:
            link.data, link.at, link.served_to = data, link.served_to, -1
            out = self._sends.out.take()
        else:
            waits = link.decoding or connection.writes_paused
            if waits or (out := self._run(connection, link, data)) is None:
                return b"", self._feed_decoder(connection, link, data)
        if self._sends.missed or self._pulls.missed:
            self._find_routes()
        commands: Sequence[Command] = ()
        if link.at < len(link.data) or self._frames.cold_at >= 0:  # hardly ever
            commands = self._feed_rest(connection, link)
        else:
            link.data, link.at = b"", 0
            if connection.unfinished_bytes:
                connection.hold(0)
        return out, commands

    def _begin(self, connection: Connection) -> Any:
        host = Host.of(connection.peer_host, connection.peer_port)
        link = HotLink(self._desk, connection, FrameDecoder(connection.limits.frame_bytes_max), host.packed())
        connection.hand_over(link)
        return link

    def _feed_decoder(self, connection: Connection, link: Any, data: bytes) -> Sequence[Command]:
        """Nothing of this read is for the kernel; not yet, when the peer is behind with reading."""
        commands: Sequence[Command] = ()
        if link.decoder.failure is not None:
            raise link.decoder.failure
        if connection.writes_paused:
            link.data = link.take(data)
            connection.feed_waits = True
        else:
            commands = self._decode(connection, link, link.take(data))
        self._hold_unfinished(connection, link)
        return commands

    def _feed_rest(self, connection: Connection, link: Any) -> Sequence[Command]:
        """The kernel has stopped at a frame that is not for it, or at one that is not whole."""
        frames, commands = self._frames, list[Command]()
        if frames.cold_at >= 0:
            commands = self._decode(connection, link, link.data[frames.cold_at : link.at])
            if len(commands) == 1 and self._has_made_room(commands[0]):
                commands, link.at = [], frames.cold_at  # it is the kernel's after all
        connection.feed_waits = link.rest_bytes > 0 and (frames.stopped or frames.cold_at >= 0)
        if not connection.feed_waits:
            link.data = link.take(b"")  # of a read that is done with, nothing is kept but an unfinished frame
            if len(link.data) > REST_BYTES_MAX:
                commands += self._decode(connection, link, link.take(b""))
        self._hold_unfinished(connection, link)
        return commands

    def _has_made_room(self, command: Command) -> bool:
        """Whether it is a send to a queue that had no blocks left, and has now. A handler makes them too, but where
        answers wait it begins after this turn of the loop, and all that comes meanwhile would be cold as well."""
        place = _place_of(command)
        queue = self._store.queues.get(*place) if place is not None and self._desk.may_send else None
        if queue is None:
            return False
        tail, count = queue.tail, self._count_of(command)
        if count <= 0 or tail.next_offset + count <= tail.room_end:
            return False
        try:
            with self._writer.lock:
                queue.make_room(count)
        except OSError:
            return False  # the handler says why
        return bool(tail.next_offset + count <= tail.room_end)  # else it would be asked again and again

    def _count_of(self, command: Command) -> int:
        """How many messages a send brings; not above 0 when it is a batch that is not sound."""
        if command.code != RequestCode.SEND_BATCH_MESSAGE:
            return 1
        with self._writer.lock:
            count, _ = self._sends.appender.measure_batch(command.body, 0, b"", 0, len(command.body))
        return int(count)

    def _hold_unfinished(self, connection: Connection, link: Any) -> None:
        unfinished = link.rest_bytes + link.decoder.pending_bytes
        if unfinished != connection.unfinished_bytes:
            connection.hold(unfinished)

    def _run(self, connection: Connection, link: Any, data: bytes) -> bytes | None:
        """One call of the kernel: the answers that may go at once; None when it may not serve."""
        desk, dispatcher = self._desk, self._dispatcher
        if dispatcher.hooks or (dispatcher.guards and self._lease is None):
            return None
        with self._writer.lock:
            if not desk.is_current():
                self._refresh(connection)
                if not desk.is_current():
                    return None
            if data:
                link.data, link.at = link.take(data) if link.data else data, 0
            return cast(bytes, desk.serve_rest(link))

    @property
    def _lease(self) -> LeaseGuard | None:
        """The one guard whose word can be had in advance, when there is no other."""
        guards = self._dispatcher.guards
        return guards[0] if len(guards) == 1 and isinstance(guards[0], LeaseGuard) else None

    def _decode(self, connection: Connection, link: Any, data: bytes) -> list[Command]:
        """What was answered before bytes that are no frame is sent before the connection ends; nothing after them is
        looked at."""
        commands: list[Command] = []
        with contextlib.suppress(RemoteProtocolError):
            commands = link.decoder.feed(data)
        if link.decoder.failure is not None:
            link.take(b"")
            connection.finish(str(link.decoder.failure))
        link.decoding = link.decoder.pending_bytes > 0 or link.decoder.failure is not None
        if commands:
            self._hold_answers()
            self.count()
        return commands

    # What the kernel did

    def _settle(self) -> None:
        """Once in a turn of the loop, whatever many reads brought."""
        desk = self._desk
        desk.settling = False
        self._hold_answers()
        if desk.stored and desk.is_awaited():
            desk.stored = False
            self._flusher.appended()
        if self._pulls.served:
            self._look_for_gone()
        for route in self._pulls.served:
            self._settle_pulls(route)
        self._pulls.served.clear()

    def _hold_answers(self) -> None:
        """Those of this turn that must wait. They count as requests under way, so not later than another may begin."""
        if self._desk.held:
            held, count = self._desk.take_held()
            self._gate.hold(held, count, self._sends.appender.end)

    def count(self) -> None:
        """Have in the figures what was stored since the last time: before a handler may look at them, and every second.
        With very many topics nearly every message is of another one."""
        for route in self._sends.grown:
            self._ports.figures.stored(route.topic.decode(), route.count, route.size_bytes, 0, route.times)
            route.count = route.size_bytes = route.times = 0
            route.noted = False
        self._sends.grown.clear()

    def forget_pages(self) -> None:
        """Every second: what was in the page cache may not be there any more."""
        self._pulls.forget_pages()

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

    def _find_routes(self) -> None:
        """For what had none, from the next time on."""
        sends, pulls, routes = self._sends, self._pulls, self._routes
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

    def _refresh(self, connection: Connection) -> None:
        """Something has changed: tell the kernel what it may do from now on, and as long as what rests on which facts.
        The lock is held."""
        health, facts, lease = self._store.health, self._facts(connection), self._lease  # before anything is looked at
        self._desk.trust(lease, 0 if lease is None else lease.valid_to_ms() * 1_000_000, self._monotonic_ns)
        version, removed = self._routes.topics.data_version, self._store.queues.removed_count
        if version is not self._topics_version or removed != self._queues_removed:
            self._topics_version, self._queues_removed = version, removed
            self._sends.clear_routes()
            self._pulls.clear_routes()
        self._configure()
        self._look_for_gone()
        self._desk.may_send = self._may_send and health.refusal is None
        serves = health.closed is None and not connection.is_draining and (self._desk.may_send or self._pulls.open)
        self._desk.expect(facts if serves else None)

    def _look_for_gone(self) -> None:
        """Where the log begins. A read that hears of it too late finds no file, and is the handlers'."""
        first = self._store.log.files.first
        self._pulls.gone_until = self._store.log_end if first is None else first

    def _facts(self, connection: Connection) -> tuple[tuple[object, str, object], ...]:
        """What the kernel's leave to serve rests on. Each is replaced when it changes, never edited."""
        store, health, lease = self._store, self._store.health, self._lease
        looked_at: tuple[tuple[object, str], ...] = (
            (connection.endpoint, "draining"),
            (health, "closed"),
            (health, "broken"),
            (health, "follows"),
            (health, "disk_full"),
            (self._routes.settings, "config"),
            (self._routes.topics, "data_version"),
            (store, "config"),
            (store, "replica_gate"),
            (store.queues, "removed_count"),
            *(() if lease is None else lease.facts()),
        )
        return tuple((owner, name, getattr(owner, name)) for owner, name in looked_at)

    def _configure(self) -> None:
        """Settings of the broker or its store, or who an answer waits for, are others than before."""
        frames, config, store = self._frames, self._routes.settings.config, self._store.config
        known = (config, store, self._store.replica_gate)
        if all(one is other for one, other in zip(known, self._known, strict=True)):
            return
        self._known = known
        may_pull = self._serves_pulls and bool(config.perm & Perm.READ) and not config.cold_flow_control
        self._may_send = bool(config.perm & Perm.WRITE and config.cluster) and not config.is_slave
        self._desk.sends_from_ms = config.accept_sends_from_ms
        frames.sends.set_templates(send_templates(config.region, config.trace_on))
        frames.sends.durable = must_wait(self._store)
        frames.sends.indexed = store.index_enabled
        frames.sends.body_bytes_max = store.message_bytes_max
        frames.pulls.open = may_pull
        frames.pulls.limits = PullLimits(
            count_max=store.memory_read_count_max,
            bytes_max=store.memory_read_bytes_max,
            asked_count_max=config.pull_count_max,
            asked_bytes_max=config.pull_bytes_max,
            memory_bytes=self._store.queries.memory_bytes,
            check_crc=store.check_crc_on_read,
        )


def _place_of(command: Command) -> tuple[str, int] | None:
    """Topic and queue of a send as producers write it."""
    if command.code == RequestCode.SEND_MESSAGE:
        names = ("topic", "queueId")
    elif command.code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
        names = ("b", "e")
    else:
        return None
    topic, queue_id = (command.ext_fields.get(name, "") for name in names)
    return (topic, int(queue_id)) if queue_id.isdecimal() and len(queue_id) <= _DIGITS_MAX else None


def _now_ns(clock: Clock) -> Callable[[], int]:
    """The shortest way to the time."""
    return time.time_ns if isinstance(clock, SystemClock) else lambda: clock.now_ms() * 1_000_000


def _monotonic_ns(clock: Clock) -> Callable[[], int]:
    return time.monotonic_ns if isinstance(clock, SystemClock) else lambda: clock.monotonic_ms() * 1_000_000
