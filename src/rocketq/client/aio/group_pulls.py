"""Pulls of a group's member."""

from __future__ import annotations

from rocketq.client.aio.puller import PULL_STATUSES, PullResult, PullStatus
from rocketq.client.aio.session import Session
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.pull_frames import PullTemplate
from rocketq.client.core.pulled_messages import pulled_messages
from rocketq.client.core.routes import MASTER_ID, broker_addr
from rocketq.client.errors import NoQueueError
from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import failure_of
from rocketq.protocol.flags import PullFlag
from rocketq.protocol.headers.pull import PullRequest, PullResponse

_HOLD, _COMMIT = int(PullFlag.HOLD), int(PullFlag.COMMIT_OFFSET)
_SUBSCRIPTION, _LITE = int(PullFlag.SUBSCRIPTION), int(PullFlag.LITE)
_SUCCESS = int(ResponseCode.SUCCESS)


class GroupPulls:
    """Goes where brokers suggest: a slave, when its master is busy."""

    def __init__(self, session: Session, group: str, namespace: Namespace) -> None:
        self._session = session
        self._group = group
        self._namespace = namespace
        self._suggested: dict[MessageQueue, int] = {}
        self._templates: dict[MessageQueue, PullTemplate] = {}

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)
        self._templates.pop(queue, None)

    async def pull(
        self,
        queue: MessageQueue,
        queue_offset: int,
        subscription: Subscription,
        *,
        count_max: int,
        hold_ms: int = 0,
        commit_offset: int | None = None,
        tags: frozenset[str] | None = None,
        with_expression: bool = False,
        lite: bool = False,
        timeout_ms: int,
    ) -> PullResult:
        """What is there; messages with other tags than `tags` are left out, since brokers only compare hashes."""
        addr, broker_id = await self._addr(queue)
        flags = _HOLD if hold_ms else 0
        if commit_offset is not None and broker_id == MASTER_ID:
            flags |= _COMMIT
        if with_expression:
            flags |= _SUBSCRIPTION
        if lite:
            flags |= _LITE
        committed = commit_offset or 0
        if self._session.is_plain:
            template = self._template(queue, subscription, count_max, with_expression)
            connection = self._session.opened(addr)
            if connection is None or connection.writes_paused:
                connection, timeout_ms = await self._session.writable(addr, RequestCode.PULL_MESSAGE, timeout_ms)
            answer = await connection.begin_call(
                RequestCode.PULL_MESSAGE,
                timeout_ms,
                lambda opaque: template.frame(opaque, queue_offset, flags, committed, hold_ms),
            )
            if answer.code not in PULL_STATUSES:
                raise failure_of(answer, peer=addr)
        else:
            request = PullRequest(
                group=self._group,
                topic=queue.topic,
                queue_id=queue.queue_id,
                queue_offset=queue_offset,
                count_max=count_max,
                sys_flag=flags,
                commit_offset=committed,
                hold_ms=hold_ms,
                subscription=subscription.expression if with_expression else None,
                subscription_version=0 if with_expression else subscription.version,
                expression_type=subscription.expression_type,
            )
            answer = await self._session.call(addr, request, timeout_ms=timeout_ms, accept=PULL_STATUSES)
        return self._result(answer, queue, tags)

    def _result(self, answer: Command, queue: MessageQueue, tags: frozenset[str] | None) -> PullResult:
        header = PullResponse.decode(answer.ext_fields)
        self._suggested[queue] = header.suggested_broker_id
        found = answer.code == _SUCCESS
        return PullResult(
            status=PullStatus.FOUND if found else PULL_STATUSES[ResponseCode(answer.code)],
            messages=pulled_messages(answer.body, queue, tags, self._namespace) if found else (),
            next_offset=header.next_offset,
            min_offset=header.min_offset,
            max_offset=header.max_offset,
            suggested_broker_id=header.suggested_broker_id,
        )

    def _template(
        self, queue: MessageQueue, subscription: Subscription, count_max: int, with_expression: bool
    ) -> PullTemplate:
        known = self._templates.get(queue)
        if known is not None and known.subscription is subscription and known.count_max == count_max:
            return known
        template = PullTemplate(self._group, queue, subscription, count_max=count_max, with_expression=with_expression)
        self._templates[queue] = template
        return template

    async def _addr(self, queue: MessageQueue) -> tuple[str, int]:
        route = await self._session.routes.get(queue.topic)
        wanted = self._suggested.get(queue, MASTER_ID)
        addrs = next((broker.addrs for broker in route.brokers if broker.broker_name == queue.broker_name), {})
        if wanted in addrs:
            return addrs[wanted], wanted
        addr = broker_addr(route, queue.broker_name)
        if addr is None:
            raise NoQueueError(queue.topic, f"broker {queue.broker_name} is not there at present")
        return addr, next(broker_id for broker_id, one in addrs.items() if one == addr)
