"""Sends of one thread with several in flight, and ends of transactions."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from rocketq.client.blocking.client import BlockingClient, RequestPipeline
from rocketq.client.core.messages import Outgoing
from rocketq.client.core.requests import SendTemplate
from rocketq.client.core.routes import MASTER_ID, RoundRobin, from_template, publish_queues
from rocketq.client.core.send_flow import PAUSE_MS_MAX, SEND_STATUSES, Accepted, RetryPolicy, SendFlow, accepted
from rocketq.client.errors import NoQueueError
from rocketq.errors import RocketQError, UnreachableError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import ClusterTable, TopicRoute
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.failures import BrokerError, MessageIllegalError, TopicNotFoundError, failure_of
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.frame import encode_command
from rocketq.protocol.headers.send import EndTransactionRequest, SendRequest
from rocketq.protocol.names import AUTO_CREATE_TOPIC
from rocketq.protocol.requests import make_request

NEW_TOPIC_QUEUES: Final = 4
SINGLES_PER_SEND: Final = 16
"""This many single-message requests count as one batch request."""


@dataclass(slots=True, kw_only=True)
class OutboundBatch:
    """The content of one request: the elements of a batch, or one message and its properties.

    With a `queue` it is sent only there, after everything that was put for that queue before.
    """

    topic: str
    body: bytes
    properties: str = ""
    is_batch: bool
    sys_flag: int = 0
    queue: MessageQueue | None = None
    origin: Any = None
    """Data of the caller."""
    flow: SendFlow | None = None
    """The attempts so far; None before the first failure."""
    pause_ms: int = 0
    """Before the next attempt."""
    tried: MessageQueue | None = None
    start_s: float = 0.0

    @property
    def weight(self) -> int:
        return SINGLES_PER_SEND if self.is_batch else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SendSettings:
    group: str
    in_flight_max: int = 4
    timeout_ms: int = 10_000
    retries: int = 8


@dataclass(frozen=True, slots=True)
class _Target:
    route: TopicRoute
    queues: tuple[MessageQueue, ...]
    masters: dict[str, str]


class BatchSender:
    """Belongs to one thread. `on_refused` returns what to send instead of a batch that no broker accepts."""

    def __init__(
        self,
        client: BlockingClient,
        settings: SendSettings,
        *,
        on_refused: Callable[[OutboundBatch, BrokerError], Sequence[OutboundBatch]],
        on_stored: Callable[[OutboundBatch, Accepted], None] = lambda outbound, answer: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._settings = settings
        self._policy = RetryPolicy(attempts_max=settings.retries + 1)
        self._on_refused = on_refused
        self._on_stored = on_stored
        self._pause = pause
        self._line: RequestPipeline[OutboundBatch] = RequestPipeline(client)
        self._weight = 0
        self._again: deque[OutboundBatch] = deque()
        self._held: Counter[MessageQueue] = Counter()
        self._flying: Counter[MessageQueue] = Counter()
        self._choice = RoundRobin(int.from_bytes(os.urandom(2), "big"))  # many short-lived senders spread
        self._targets: dict[str, _Target] = {}
        self._templates: dict[tuple[str, str], SendTemplate] = {}
        probe = make_request(None, opaque=0, code=RequestCode.SEND_MESSAGE_V2)
        self._is_plain = client.signed(probe) is probe

    def queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """The writable queues of a topic."""
        return self._found(topic).queues

    def masters(self, topic: str) -> dict[str, str]:
        """The addresses of the topic's brokers by name."""
        return dict(self._found(topic).masters)

    def put(self, outbound: OutboundBatch) -> None:
        """Returns when it is sent; an error may be of any batch that was put before."""
        weight_max = self._settings.in_flight_max * SINGLES_PER_SEND
        while self._again or self._weight + outbound.weight > weight_max or self._must_wait(outbound):
            self._advance()
        outbound.start_s = time.monotonic()
        if outbound.queue is not None:
            self._held[outbound.queue] += 1
        self._post(outbound)

    def drain(self) -> None:
        """Returns when brokers have stored everything."""
        while self._again or len(self._line):
            self._advance()

    def abandon(self) -> None:
        """After an error: drop all requests in flight."""
        self._line.abandon()
        self._again.clear()

    def _must_wait(self, outbound: OutboundBatch) -> bool:
        return outbound.queue is not None and self._held[outbound.queue] > 0

    def _advance(self) -> None:
        """One step: a retry that is due, or the next result of a request."""
        if self._again and not (self._again[0].queue is not None and self._flying[self._again[0].queue]):
            outbound = self._again.popleft()
            if outbound.pause_ms:
                self._pause(outbound.pause_ms / 1000)
            self._post(outbound)
            return
        if not len(self._line):
            return
        addr, outbound, outcome = self._line.next()
        self._weight -= outbound.weight
        queue = outbound.tried
        assert queue is not None
        if outbound.queue is not None:
            self._flying[outbound.queue] -= 1
        if isinstance(outcome, RocketQError):
            self._failed(outbound, outcome)
        elif outcome.code not in SEND_STATUSES:
            self._failed(outbound, failure_of(outcome, peer=addr))
        else:
            self._stored(outbound, accepted(outcome.code, outcome.ext_fields, queue))

    def _stored(self, outbound: OutboundBatch, answer: Accepted) -> None:
        if outbound.queue is not None:
            self._held[outbound.queue] -= 1
        self._on_stored(outbound, answer)

    def _failed(self, outbound: OutboundBatch, error: RocketQError) -> None:
        if isinstance(error, BrokerError) and is_for_no_broker(error):
            instead = self._on_refused(outbound, error)
            if outbound.queue is not None:
                self._held[outbound.queue] -= 1
            for each in reversed(instead):
                each.start_s = outbound.start_s
                if each.queue is not None:
                    self._held[each.queue] += 1
                self._again.appendleft(each)
            return
        now_ms = round(time.monotonic() * 1000)
        if outbound.flow is None:
            outbound.flow = SendFlow(outbound.topic, self._policy, round(outbound.start_s * 1000), None)
        tried = outbound.tried.broker_name if outbound.tried is not None else ""
        target = self._targets.get(outbound.topic)
        others = target.masters if target is not None and outbound.queue is None else ()
        outbound.pause_ms = outbound.flow.failed(tried, error, now_ms, others) or 0
        self._client.forget_routes()
        self._targets.clear()
        self._again.append(outbound)

    def _post(self, outbound: OutboundBatch) -> None:
        """Send it, or queue it for a retry."""
        failed_broker = outbound.flow.failed_broker if outbound.flow is not None else None
        try:
            target = self._target(outbound.topic)
            queue = outbound.queue or self._choice.choose(target.queues, failed_broker)
            outbound.tried = queue
            addr = target.masters.get(queue.broker_name)
            if addr is None:
                raise NoQueueError(queue.topic, f"broker {queue.broker_name} has no master at present")
        except RocketQError as error:
            if isinstance(error, TopicNotFoundError) and not self._client.knew(outbound.topic):
                raise
            self._failed(outbound, error)
            return
        code = RequestCode.SEND_BATCH_MESSAGE if outbound.is_batch else RequestCode.SEND_MESSAGE_V2
        self._weight += outbound.weight
        if outbound.queue is not None:
            self._flying[outbound.queue] += 1
        self._line.post(addr, outbound, code, self._frame(outbound, queue, code), self._settings.timeout_ms)

    def _found(self, topic: str) -> _Target:
        """Looks up again while the brokers of a known topic are down: as often as a message would be sent."""
        for attempt in range(1, self._policy.attempts_max):
            try:
                return self._target(topic)
            except RocketQError as error:
                if not (self._client.knew(topic) and self._policy.is_retriable(error)):
                    raise
                self._client.forget_routes()
                self._pause(min(PAUSE_MS_MAX, self._policy.pause_ms(attempt + 1)) / 1000)
        return self._target(topic)

    def _target(self, topic: str) -> _Target:
        target = self._targets.get(topic)
        if target is None:
            route = self._route(topic)
            masters = {one.broker_name: one.addrs[MASTER_ID] for one in route.brokers if MASTER_ID in one.addrs}
            target = _Target(route, publish_queues(topic, route), masters)
            if not target.queues:
                self._client.forget_routes()
                raise NoQueueError(topic, "no queue of it can be written at present")
            self._targets[topic] = target
        return target

    def _route(self, topic: str) -> TopicRoute:
        """For a topic that does not exist: the route it will have once a broker stores its first message."""
        try:
            return self._client.route(topic)
        except TopicNotFoundError as unknown:
            try:
                return from_template(self._client.route(AUTO_CREATE_TOPIC), NEW_TOPIC_QUEUES)
            except TopicNotFoundError:
                raise unknown from None

    # Frames

    def _frame(self, outbound: OutboundBatch, queue: MessageQueue, code: RequestCode) -> Callable[[int], bytes]:
        born_ms = time.time_ns() // 1_000_000
        if outbound.is_batch or not self._is_plain:
            command = self._client.signed(self._command(outbound, queue, code, born_ms))
            return lambda opaque: encode_command(replace(command, opaque=opaque))
        key = (queue.topic, queue.broker_name)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = SendTemplate(
                self._settings.group,
                queue.topic,
                queue.broker_name,
                code=code,
                template_topic=AUTO_CREATE_TOPIC,
                new_topic_queues=NEW_TOPIC_QUEUES,
            )
        outgoing = Outgoing(outbound.body, outbound.sys_flag, outbound.properties, "")
        return lambda opaque: template.frame(opaque, queue.queue_id, born_ms, outgoing)

    def _command(self, outbound: OutboundBatch, queue: MessageQueue, code: RequestCode, born_ms: int) -> Command:
        request = SendRequest(
            group=self._settings.group,
            topic=queue.topic,
            default_queue_count=NEW_TOPIC_QUEUES,
            queue_id=queue.queue_id,
            sys_flag=outbound.sys_flag,
            born_ms=born_ms,
            flag=0,
            properties=outbound.properties,
            batch=outbound.is_batch,
            broker_name=queue.broker_name,
        )
        form = HeaderForm.BINARY if outbound.is_batch else HeaderForm.JSON  # the id of each message is in the answer
        return make_request(request, opaque=0, code=code, body=outbound.body, form=form)


def is_for_no_broker(error: BrokerError) -> bool:
    """Whether no broker would accept the message; 5.x reports a batch that is too large as SYSTEM_ERROR."""
    too_large = error.code == ResponseCode.SYSTEM_ERROR and "size exceeded" in (error.remark or "")
    return isinstance(error, MessageIllegalError) or too_large


IN_FLIGHT_MAX: Final = 128
_LATER: Final = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.FLUSH_DISK_TIMEOUT}
)
"""The broker has not taken the decision, or it is not on disk yet: sending it again is harmless."""


@dataclass(frozen=True, slots=True, order=True)
class HalfHandle:
    """The location of a half message, which ends its transaction."""

    broker_name: str
    half_queue_offset: int
    half_log_offset: int


@dataclass(slots=True)
class _End:
    handle: HalfHandle
    tries: int = 0


class TransactionEnds:
    """Decides on half messages. Belongs to one thread."""

    def __init__(
        self,
        client: BlockingClient,
        *,
        timeout_ms: int = 10_000,
        retries: int = 8,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._pause = pause
        self._masters: dict[str, str] = {}

    def end_all(
        self, group: str, handles: Iterable[HalfHandle], state: TransactionState
    ) -> dict[HalfHandle, RocketQError]:
        """Send this decision for all handles and wait for every answer; returns the failures."""
        waiting = deque(_End(handle) for handle in handles)
        line: RequestPipeline[_End] = RequestPipeline(self._client)
        failures: dict[HalfHandle, RocketQError] = {}
        while waiting or len(line):
            while waiting and len(line) < IN_FLIGHT_MAX:
                end = waiting.popleft()
                if (error := self._post(line, group, end, state)) is not None:
                    self._tried(end, error, waiting, failures)
            if len(line):
                addr, end, outcome = line.next()
                if isinstance(outcome, RocketQError):
                    self._tried(end, outcome, waiting, failures)
                elif outcome.code != ResponseCode.SUCCESS:
                    self._tried(end, failure_of(outcome, peer=addr), waiting, failures)
        return failures

    def _tried(
        self, end: _End, error: RocketQError, waiting: deque[_End], failures: dict[HalfHandle, RocketQError]
    ) -> None:
        later = error.code in _LATER if isinstance(error, BrokerError) else error.retriable
        end.tries += 1
        if not later or end.tries > self._retries:
            failures[end.handle] = error
            return
        self._masters.clear()
        if not any(other.tries >= end.tries for other in waiting):  # one pause for all that failed together
            self._pause(min(PAUSE_MS_MAX, 50 << end.tries) / 1000)
        waiting.append(end)

    def _post(self, line: RequestPipeline[_End], group: str, end: _End, state: TransactionState) -> RocketQError | None:
        handle = end.handle
        try:
            addr = self._master(handle.broker_name)
        except RocketQError as error:
            return error
        header = EndTransactionRequest(
            group=group,
            half_queue_offset=handle.half_queue_offset,
            half_log_offset=handle.half_log_offset,
            state=int(state),
            broker_name=handle.broker_name,
        )
        command = self._client.signed(make_request(header, opaque=0))
        code = RequestCode.END_TRANSACTION
        line.post(addr, end, code, lambda opaque: encode_command(replace(command, opaque=opaque)), self._timeout_ms)
        return None

    def _master(self, broker_name: str) -> str:
        if broker_name not in self._masters:
            cluster = ClusterTable.decode(self._client.call_name_server(code=RequestCode.GET_BROKER_CLUSTER_INFO).body)
            found = {name: data.addrs[MASTER_ID] for name, data in cluster.brokers.items() if MASTER_ID in data.addrs}
            self._masters.update(found)
        if broker_name not in self._masters:
            raise UnreachableError(broker_name, "the broker is not registered at present, or has no master")
        return self._masters[broker_name]
