"""Pulls of a group's member."""

from __future__ import annotations

from rocketq.client.aio.puller import PULL_STATUSES, PullResult, PullStatus
from rocketq.client.aio.session import Session
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.pulled_messages import pulled_messages
from rocketq.client.core.routes import MASTER_ID, broker_addr
from rocketq.client.errors import NoQueueError
from rocketq.protocol.bodies.heartbeat import Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import PullFlag
from rocketq.protocol.headers.pull import PullRequest, PullResponse


class GroupPulls:
    """Goes where brokers suggest: a slave, when its master is busy."""

    def __init__(self, session: Session, group: str, namespace: Namespace) -> None:
        self._namespace = namespace
        self._session = session
        self._group = group
        self._suggested: dict[MessageQueue, int] = {}

    def forget(self, queue: MessageQueue) -> None:
        self._suggested.pop(queue, None)

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
        flags = PullFlag.HOLD if hold_ms else PullFlag(0)
        if commit_offset is not None and broker_id == MASTER_ID:
            flags |= PullFlag.COMMIT_OFFSET
        if with_expression:
            flags |= PullFlag.SUBSCRIPTION
        if lite:
            flags |= PullFlag.LITE
        request = PullRequest(
            group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=queue_offset,
            count_max=count_max,
            sys_flag=int(flags),
            commit_offset=commit_offset or 0,
            hold_ms=hold_ms,
            subscription=subscription.expression if with_expression else None,
            subscription_version=0 if with_expression else subscription.version,
            expression_type=subscription.expression_type,
        )
        answer = await self._session.call(
            addr, request, code=RequestCode.PULL_MESSAGE, timeout_ms=timeout_ms, accept=PULL_STATUSES
        )
        header = PullResponse.decode(answer.ext_fields)
        self._suggested[queue] = header.suggested_broker_id
        status = PULL_STATUSES[ResponseCode(answer.code)]
        return PullResult(
            status=status,
            messages=pulled_messages(answer.body, queue, tags, self._namespace) if status is PullStatus.FOUND else (),
            next_offset=header.next_offset,
            min_offset=header.min_offset,
            max_offset=header.max_offset,
            suggested_broker_id=header.suggested_broker_id,
        )

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
