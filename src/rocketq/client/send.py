"""Send requests: find the queue and its broker, exchange the request, retry on another broker."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

from rocketq.client.core.messages import Message, Outgoing, prepare
from rocketq.client.core.requests import SendTemplate
from rocketq.client.core.routes import MASTER_ID, FaultLatency, RoundRobin, from_template, publish_queues
from rocketq.client.core.send_flow import (
    SEND_STATUSES,
    Accepted,
    RetryPolicy,
    SendFlow,
    SendResult,
    accepted,
    send_result,
)
from rocketq.client.errors import NoQueueError
from rocketq.client.fan_out import outcomes
from rocketq.client.session import Session
from rocketq.errors import RequestTimeoutError, RocketQError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode, request_text
from rocketq.protocol.command import Command
from rocketq.protocol.failures import BrokerError, TopicNotFoundError, failure_of
from rocketq.protocol.headers.offsets import MaxOffsetRequest
from rocketq.protocol.headers.send import SendRequest
from rocketq.protocol.names import AUTO_CREATE_TOPIC
from rocketq.protocol.requests import make_request

log = logging.getLogger(__name__)

SEND_TIMEOUT_MS: Final = 3_000
NEW_TOPIC_QUEUES: Final = 4
TEMPLATES_MAX: Final = 10_000
Tried = tuple[MessageQueue, RocketQError | Accepted]
"""A try that was made already, and its outcome."""


@dataclass(frozen=True, slots=True)
class Target:
    """Queues and master addresses of a topic, derived from its route."""

    route: TopicRoute
    queues: tuple[MessageQueue, ...]
    masters: Mapping[str, str]
    is_assumed: bool = False
    """Whether the topic does not exist yet, and the route is that of the template topic."""


_ONE_ATTEMPT: Final = RetryPolicy(attempts_max=1)
_NO_BROKERS: Final[Mapping[str, str]] = {}


class SendPath:
    """Sends of one group. Names of topics and queues include the namespace."""

    def __init__(
        self,
        session: Session,
        group: str,
        *,
        policy: RetryPolicy | None = None,
        faults: FaultLatency | None = None,
        template_topic: str = AUTO_CREATE_TOPIC,
        new_topic_queues: int = NEW_TOPIC_QUEUES,
    ) -> None:
        self._session = session
        self._clock = session.clock
        self._group = group
        self._policy = policy or RetryPolicy()
        self._faults = faults
        self._template_topic = template_topic
        self._new_topic_queues = new_topic_queues
        self._choice = RoundRobin(int.from_bytes(os.urandom(2), "big"), faults)  # many short-lived senders spread
        self._try = self._exchange if faults is None else self._watched
        self._targets: dict[str, Target] = {}
        self._templates: dict[tuple[str, str, RequestCode], SendTemplate] = {}

    async def anywhere(
        self,
        topic: str,
        outgoing: Outgoing,
        timeout_ms: int,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
        *,
        tried: Tried | None = None,
        start_ms: int | None = None,
    ) -> Accepted:
        """Send to a queue of the topic, after a failure to one of another broker. The timeout bounds all attempts.

        Errors that no retry can help are raised as they are; SendFailedError has all attempts. `tried` is a first try
        that was made already, `start_ms` when it began.
        """
        return await self._send(topic, None, outgoing, timeout_ms, code, tried, start_ms)

    def begin(
        self, topic: str, queue: MessageQueue | None, outgoing: Outgoing, timeout_ms: int, code: RequestCode
    ) -> tuple[MessageQueue, str, asyncio.Future[Command]] | None:
        """The first try without waiting: its queue, address and answer; None where something must be waited for."""
        target = self._known(topic) if self._faults is None and self._session.is_plain else None
        if target is None or target.is_assumed:
            return None
        if queue is None:
            queue = self._choice.choose(target.queues)
            timeout_ms = self._policy.timeout_ms(1, timeout_ms)
        addr = self._master(target, queue)
        connection = self._session.opened(addr)
        if connection is None or connection.writes_paused:
            return None
        template, born_ms, queue_id = self._template(queue, code), self._clock.now_ms(), queue.queue_id
        answer = connection.start_call(
            code, timeout_ms, lambda opaque: template.frame(opaque, queue_id, born_ms, outgoing)
        )
        return queue, addr, answer

    def plan(self, topic: str, outgoing: Outgoing) -> tuple[MessageQueue, str, Callable[[int], bytes]] | None:
        """A queue, its broker's address and the frame for an opaque; None as with `begin`. For any thread."""
        target = self._known(topic) if self._faults is None and self._session.is_plain else None
        if target is None or target.is_assumed or outgoing.reconsume_times or outgoing.max_reconsume_times is not None:
            return None
        queue = self._choice.choose(target.queues)
        addr = target.masters.get(queue.broker_name)
        if addr is None:
            return None
        template, born_ms = self._template(queue, RequestCode.SEND_MESSAGE_V2), self._clock.now_ms()
        addr = self._session.config.addr_map.get(addr, addr)
        return queue, addr, lambda opaque: template.frame(opaque, queue.queue_id, born_ms, outgoing)

    def judge(self, queue: MessageQueue, addr: str, answer: Command) -> Accepted:
        """What the broker says it stored; the error its answer stands for is raised."""
        if answer.code not in SEND_STATUSES:
            raise failure_of(answer, peer=addr)
        return accepted(answer.code, answer.ext_fields, queue)

    def is_final(self, answer: Accepted) -> bool:
        """Whether no other try could store the message more safely."""
        return self._policy.is_final(SEND_STATUSES[answer.code])

    async def to_queue(
        self,
        queue: MessageQueue,
        outgoing: Outgoing,
        timeout_ms: int,
        code: RequestCode = RequestCode.SEND_MESSAGE_V2,
        *,
        tried: Tried | None = None,
        start_ms: int | None = None,
    ) -> Accepted:
        """Send to this queue, once; repeated only while the request cannot be sent."""
        return await self._send(queue.topic, queue, outgoing, timeout_ms, code, tried, start_ms)

    async def _send(
        self,
        topic: str,
        fixed: MessageQueue | None,
        outgoing: Outgoing,
        timeout_ms: int,
        code: RequestCode,
        tried: Tried | None,
        start_ms: int | None,
    ) -> Accepted:
        """The asyncio driver of SendFlow, which is made at the first failure."""
        now_ms = self._clock.monotonic_ms()
        start_ms = now_ms if start_ms is None else start_ms
        policy, left_ms = self._policy if fixed is None else _ONE_ATTEMPT, timeout_ms
        flow: SendFlow | None = None
        if tried is not None:
            flow = SendFlow(topic, policy, start_ms, timeout_ms, raise_last=fixed is not None)
            target = self._known(topic)
            pause_ms = self._report(flow, topic, tried[0].broker_name, tried[1], target.masters if target else ())
            if pause_ms is None:
                assert flow.unconfirmed is not None
                return flow.unconfirmed
            await asyncio.sleep(pause_ms / 1000)
            left_ms = flow.left_ms(self._clock.monotonic_ms())
        while True:
            broker_name, brokers = "", _NO_BROKERS
            answer: Accepted | None = None
            failed: RocketQError
            try:
                target = self._known(topic) or await self._target(topic, left_ms)
            except RocketQError as error:
                if flow is None and not isinstance(error, NoQueueError):
                    raise
                failed = error
            else:
                queue = fixed or self._choice.choose(target.queues, flow.failed_broker if flow else None, now_ms)
                broker_name, brokers = queue.broker_name, target.masters
                left_ms = max(1, timeout_ms - (self._clock.monotonic_ms() - start_ms))
                attempt_ms = policy.timeout_ms(flow.number if flow else 1, left_ms)
                try:
                    answer = await self._try(target, queue, outgoing, attempt_ms, code)
                    if policy.is_final(SEND_STATUSES[answer.code]):
                        if target.is_assumed:
                            self._session.routes.assume(topic, target.route)
                        return answer
                except RocketQError as error:
                    failed = error
            now_ms = self._clock.monotonic_ms()
            flow = flow or SendFlow(topic, policy, start_ms, timeout_ms, raise_last=fixed is not None)
            pause_ms = self._report(flow, topic, broker_name, failed if answer is None else answer, brokers)
            if pause_ms is None:
                assert flow.unconfirmed is not None
                return flow.unconfirmed
            await asyncio.sleep(pause_ms / 1000)
            left_ms = flow.left_ms(self._clock.monotonic_ms())

    def _report(
        self, flow: SendFlow, topic: str, broker_name: str, outcome: RocketQError | Accepted, brokers: Collection[str]
    ) -> int | None:
        """The pause before the next attempt, after one with this outcome; see SendFlow."""
        now_ms = self._clock.monotonic_ms()
        if isinstance(outcome, Accepted):
            return flow.not_confirmed(broker_name, outcome, now_ms, brokers)
        self._session.routes.expire(topic)
        return flow.failed(broker_name, outcome, now_ms, brokers)

    async def oneway(self, topic: str, outgoing: Outgoing, queue: MessageQueue | None, timeout_ms: int) -> None:
        """Returns when the message is written to the network; there is no answer."""
        target = self._known(topic) or await self._target(topic, timeout_ms)
        chosen = queue or self._choice.choose(target.queues, now_ms=self._clock.monotonic_ms())
        addr = self._master(target, chosen)
        command = self._command(chosen, outgoing, RequestCode.SEND_MESSAGE_V2, oneway=True)
        await self._session.notify_command(addr, command, timeout_ms=timeout_ms)

    async def queues(self, topic: str, timeout_ms: int) -> tuple[MessageQueue, ...]:
        """The writable queues, in the order of the route."""
        return (self._known(topic) or await self._target(topic, timeout_ms)).queues

    async def master(self, topic: str, broker_name: str, timeout_ms: int) -> str:
        """The master address of this broker for the topic; NoQueueError if it has no master."""
        target = self._known(topic) or await self._target(topic, timeout_ms)
        return self._master(target, MessageQueue(topic=topic, broker_name=broker_name, queue_id=0))

    def masters(self) -> dict[str, tuple[str, str]]:
        """By broker name: its master address and one of its topics."""
        return {name: (addr, topic) for topic, target in self._targets.items() for name, addr in target.masters.items()}

    def _known(self, topic: str) -> Target | None:
        """The cached target if it has queues and its route is still valid."""
        target = self._targets.get(topic)
        if target is None or not target.queues or self._session.routes.peek(topic) is not target.route:
            return None
        return target

    async def _target(self, topic: str, timeout_ms: int) -> Target:
        route, is_assumed = await self._route_by(topic, timeout_ms)
        target = self._targets.get(topic)
        if target is None or target.route is not route:
            masters = {one.broker_name: one.addrs[MASTER_ID] for one in route.brokers if MASTER_ID in one.addrs}
            target = self._targets[topic] = Target(route, publish_queues(topic, route), masters, is_assumed)
        if not target.queues:
            self._session.routes.expire(topic)
            raise NoQueueError(topic, "it has no writable queue")
        return target

    async def _route_by(self, topic: str, timeout_ms: int) -> tuple[TopicRoute, bool]:
        timeout_ms = max(1, timeout_ms)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._route(topic)
        except TimeoutError:
            addrs = ";".join(self._session.name_servers.addrs)
            code = RequestCode.GET_ROUTEINFO_BY_TOPIC
            what = request_text(code, {"topic": topic})
            raise RequestTimeoutError(addrs, code, timeout_ms, what) from None

    async def _route(self, topic: str) -> tuple[TopicRoute, bool]:
        """For a topic that does not exist, an assumed route: the one it will have after its first message."""
        try:
            return await self._session.routes.get(topic), False
        except TopicNotFoundError as unknown:
            try:
                template = await self._session.routes.get(self._template_topic)
            except TopicNotFoundError:
                raise unknown from None
            return from_template(template, self._new_topic_queues), True

    async def _watched(
        self, target: Target, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int, code: RequestCode
    ) -> Accepted:
        """An exchange that records the broker's latency or failure."""
        assert self._faults is not None
        start_ms = self._clock.monotonic_ms()
        isolated = reachable = True
        try:
            answer = await self._exchange(target, queue, outgoing, timeout_ms, code)
            isolated = False
        except BrokerError:
            reachable = False
            raise
        except RocketQError:
            reachable = self._faults.config.probe_interval_ms is None  # with probes, the prober detects recovery
            raise
        except asyncio.CancelledError:
            isolated = False
            raise
        finally:
            now_ms = self._clock.monotonic_ms()
            self._faults.record(queue.broker_name, now_ms - start_ms, now_ms, isolated=isolated, reachable=reachable)
        return answer

    async def _exchange(
        self, target: Target, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int, code: RequestCode
    ) -> Accepted:
        addr = self._master(target, queue)
        if not self._session.is_plain or outgoing.reconsume_times or outgoing.max_reconsume_times is not None:
            command = self._command(queue, outgoing, code)
            answer = await self._session.exchange(addr, command, timeout_ms=timeout_ms, accept=SEND_STATUSES)
            return accepted(answer.code, answer.ext_fields, queue)
        connection = self._session.opened(addr)
        if connection is None or connection.writes_paused:
            connection, timeout_ms = await self._session.writable(addr, code, timeout_ms)
        template = self._template(queue, code)
        born_ms = self._clock.now_ms()
        queue_id = queue.queue_id
        answer = await connection.start_call(
            code, timeout_ms, lambda opaque: template.frame(opaque, queue_id, born_ms, outgoing)
        )
        if answer.code not in SEND_STATUSES:
            raise failure_of(answer, peer=addr)
        return accepted(answer.code, answer.ext_fields, queue)

    def _master(self, target: Target, queue: MessageQueue) -> str:
        addr = target.masters.get(queue.broker_name)
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} has no master in the route")
        return addr

    def _template(self, queue: MessageQueue, code: RequestCode) -> SendTemplate:
        key = (queue.topic, queue.broker_name, code)
        template = self._templates.get(key)
        if template is None:
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            template = self._templates[key] = SendTemplate(
                self._group,
                queue.topic,
                queue.broker_name,
                code=code,
                template_topic=self._template_topic,
                new_topic_queues=self._new_topic_queues,
                unit_mode=self._session.config.unit_mode,
            )
        return template

    def _command(self, queue: MessageQueue, outgoing: Outgoing, code: RequestCode, *, oneway: bool = False) -> Command:
        request = SendRequest(
            group=self._group,
            topic=queue.topic,
            default_topic=self._template_topic,
            default_queue_count=self._new_topic_queues,
            queue_id=queue.queue_id,
            sys_flag=outgoing.sys_flag,
            born_ms=self._clock.now_ms(),
            flag=outgoing.flag,
            properties=outgoing.properties,
            reconsume_times=outgoing.reconsume_times,
            max_reconsume_times=outgoing.max_reconsume_times,
            unit_mode=self._session.config.unit_mode,
            batch=code is RequestCode.SEND_BATCH_MESSAGE,
            broker_name=queue.broker_name,
        )
        return make_request(request, opaque=0, code=code, body=outgoing.body, oneway=oneway)


class Sender:
    """Sends for `group` without registering a producer. Names include the namespace."""

    def __init__(self, session: Session, group: str, *, attempts_max: int = 3) -> None:
        self._session = session
        self._path = SendPath(session, group, policy=RetryPolicy(attempts_max=attempts_max))

    async def send(
        self, message: Message, queue: MessageQueue | None = None, *, timeout_ms: int = SEND_TIMEOUT_MS
    ) -> SendResult:
        """Send to this queue in one attempt, or to any queue of the topic with retries on other brokers.

        The timeout bounds the whole call. A message whose answer did not arrive may have been stored.
        """
        outgoing = prepare(message, self._session.unique_ids.next(self._session.clock.now_ms()))
        if queue is not None:
            answer = await self._path.to_queue(queue, outgoing, timeout_ms)
        else:
            answer = await self._path.anywhere(message.topic, outgoing, timeout_ms)
        return send_result(answer, outgoing.unique_key)


class Prober:
    """Probes unreachable brokers of one producer with a small request and a short timeout."""

    def __init__(self, session: Session, faults: FaultLatency, path: SendPath) -> None:
        self._session = session
        self._faults = faults
        self._path = path
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._faults.config.probe_interval_ms is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._faults.config.probe_interval_ms))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, interval_ms: int) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                await self.probe()
            except Exception:  # probing continues after any failure
                log.exception("brokers could not be probed")

    async def probe(self) -> None:
        """Probe all unreachable brokers concurrently; forget those that have left all routes."""
        masters = self._path.masters()
        self._faults.keep_only(masters)
        timeout_ms = self._faults.config.probe_timeout_ms
        found = await outcomes(
            {
                name: self._session.call(
                    masters[name][0], MaxOffsetRequest(topic=masters[name][1], queue_id=0), timeout_ms=timeout_ms
                )
                for name in self._faults.unreachable()
            }
        )
        for name in found.results:
            self._faults.reached(name)
        for name, error in found.failures.items():
            log.debug("broker %s is still unreachable: %s", name, error)
