"""The feed of a broker's ports: plain sends are stored and answered by the kernel, the rest goes to the handlers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketq.broker.figures import Figures
from rocketq.broker.settings import Settings
from rocketq.broker.topic_table import TopicTable
from rocketq.kernel.send_frames import SendFrames, SendRoute
from rocketq.model import Host, SysFlag
from rocketq.protocol.command import Command
from rocketq.protocol.flags import Perm, TopicFilterType
from rocketq.protocol.frame import FRAME_BYTES_MAX, FrameDecoder, encode_command
from rocketq.protocol.headers.send import SendResponse
from rocketq.protocol.names import SCHEDULE_TOPIC
from rocketq.protocol.versions import V5_0_0
from rocketq.remoting import Connection, Dispatcher, Reply
from rocketq.runtime.clock import Clock
from rocketq.store import FlushType, Store

REST_BYTES_MAX: Final = 64 << 10  # longer unfinished frames are the decoder's, so that they are copied once
_SYSTEM_PREFIXES: Final = ("%", "RMQ_SYS_", "rmq_sys_")
_MARKS: Final = ("@ID@", 111_111, 222_222, "@TX@", 333_333)


@dataclass(slots=True)
class _State:
    """What a connection's feed remembers between reads."""

    decoder: FrameDecoder
    born_host: bytes
    rest: bytes = b""


class HotFeed:
    """Counts and announces what the kernel stored, and keeps its routes in step with the topics."""

    def __init__(
        self,
        settings: Settings,
        topics: TopicTable,
        store: Store,
        figures: Figures,
        clock: Clock,
        dispatcher: Dispatcher,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._store = store
        self._figures = figures
        self._clock = clock
        self._dispatcher = dispatcher
        self._version: object = None
        self._frames: SendFrames | None = None

    @property
    def taken(self) -> int:
        """How many messages the kernel has stored by itself."""
        return 0 if self._frames is None else int(self._frames.taken)

    def __call__(self, connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
        state = connection.feed_state
        if state is None:
            state = connection.feed_state = _begin(connection)
        if not self._is_open() or state.decoder.pending_bytes:
            out, commands = b"", self._decode(connection, state, state.rest + data)
            state.rest = b""
        else:
            out, commands = self._feed(connection, state, state.rest + data if state.rest else data)
        unfinished = len(state.rest) + state.decoder.pending_bytes
        if unfinished != connection.unfinished_bytes:
            connection.hold(unfinished)
        return out, commands

    def _is_open(self) -> bool:
        """Whether a plain send may be stored without asking anybody."""
        config = self._settings.config
        return bool(
            config.perm & Perm.WRITE
            and not self._dispatcher.guards
            and not self._dispatcher.hooks
            and self._store.refusal is None
            and self._store.config.flush_type is FlushType.ASYNC_FLUSH
            and not self._store.config.store_host.is_ipv6
            and self._clock.now_ms() >= config.accept_sends_from_ms
        )

    def _feed(self, connection: Connection, state: _State, data: bytes) -> tuple[bytes, list[Command]]:
        frames, writer = self._current_frames(), self._store.writer
        with writer.lock:
            before = frames.appender.records
            consumed = frames.feed(data, state.born_host, self._clock.now_ms())
            if frames.appender.records != before:
                writer.stored_by_kernel()
        out: bytes = frames.take_answers()
        commands = [each for low, high in frames.cold for each in self._decode(connection, state, data[low:high])]
        state.rest = data[consumed:]
        if len(state.rest) > REST_BYTES_MAX or 4 <= len(state.rest) < 8:  # the kernel wants 8 to look at a length
            commands += self._decode(connection, state, state.rest)
            state.rest = b""
        self._settle(frames)
        return out, commands

    def _settle(self, frames: SendFrames) -> None:
        for route in frames.routes():
            if route.count:
                self._figures.stored(route.topic.decode(), route.count, route.size_bytes, 0)
                route.count = route.size_bytes = 0
        for topic in dict.fromkeys(frames.missed):
            self._add_route(frames, topic)
        self._store.announcer.announce()

    def _decode(self, connection: Connection, state: _State, data: bytes) -> list[Command]:
        commands = state.decoder.feed(data)
        if state.decoder.failure is not None:
            connection.finish(str(state.decoder.failure))
        return list(commands)

    # Routes

    def _current_frames(self) -> SendFrames:
        config, version = self._settings.config, self._topics.data_version
        if self._frames is None:
            pieces = _answer_pieces(self._store.config.store_host, config.region, config.trace_on)
            limit = self._store.config.message_bytes_max
            self._frames = SendFrames(
                self._store.log.appender, pieces, config.cluster.encode(), limit, FRAME_BYTES_MAX - 4, V5_0_0
            )
        if version is not self._version:
            self._version = version
            self._frames.clear_routes()
        return self._frames

    def _add_route(self, frames: SendFrames, name: bytes) -> None:
        """A route for a topic there is; its queues that were never written to are left to the handlers."""
        topic = self._topics.get(name.decode("utf-8", "replace"))
        if topic is None or topic.topic == SCHEDULE_TOPIC or topic.topic.startswith(_SYSTEM_PREFIXES):
            return
        count = max(topic.write_queue_count, topic.read_queue_count)
        queues = [self._store.queues.get(topic.topic, number) for number in range(count)]
        sys_flag = SysFlag.MULTI_TAGS if topic.filter_type is TopicFilterType.MULTI_TAG else 0
        frames.add_route(SendRoute(name, [queue and queue.tail for queue in queues], sys_flag))


def _begin(connection: Connection) -> _State:
    host = Host.of(connection.peer_host, connection.peer_port)
    return _State(FrameDecoder(connection.limits.frame_bytes_max), host.packed())


def _answer_pieces(store_host: Host, region: str, trace_on: bool) -> tuple[bytes, ...]:
    """The texts of an answer between its numbers, taken from answers as the handlers write them."""
    plain, full = (_sample(transaction, region, trace_on) for transaction in (None, "@TX@"))
    before_id, rest = plain.split(b"@ID@")
    before_queue, rest = rest.split(b"111111")
    before_offset, rest = rest.split(b"222222")
    before_opaque, tail = rest.split(b"333333")
    before_transaction = full.split(b"222222")[1].split(b"@TX@")[0]
    host_hex = store_host.packed().hex().upper().encode()
    return host_hex, before_id, before_queue, before_offset, before_transaction, before_opaque, tail


def _sample(transaction: str | None, region: str, trace_on: bool) -> bytes:
    header = SendResponse(
        message_id="@ID@",
        queue_id=111_111,
        queue_offset=222_222,
        transaction_id=transaction,
        region=region,
        trace_on=trace_on,
    )
    request = Command(code=310, opaque=333_333)
    return encode_command(Reply(0, None, header=header).to_command(request))[8:]
