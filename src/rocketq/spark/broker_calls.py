"""Requests of the driver: retried as often as the options allow, with errors as SparkError."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, TypeVar

from rocketq.client.blocking import BlockingClient
from rocketq.errors import RocketQError
from rocketq.model import Record
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.flags import ExpressionType, PullFlag
from rocketq.protocol.headers.pull import PullRequest
from rocketq.protocol.headers.wire import Header
from rocketq.protocol.messages import decode_records
from rocketq.spark.errors import SparkError, told_of
from rocketq.spark.offsets import QueueKey
from rocketq.spark.options import Connection, Fetching

_Result = TypeVar("_Result")
_DONE: Final = (ResponseCode.SUCCESS,)
_PULLED: Final = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


class BrokerCalls:
    """One client and its retry limits."""

    def __init__(
        self, connection: Connection, fetching: Fetching, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._fetching = fetching
        self._pause = pause
        self.client = BlockingClient(connection.name_servers, credentials=connection.credentials, tls=connection.tls)

    def patiently(self, ask: Callable[[], _Result]) -> _Result:
        """The result of the first try that is answered; the last failure when none is."""
        for attempt in range(self._fetching.retries + 1):
            try:
                return ask()
            except RocketQError as error:
                if attempt == self._fetching.retries or not error.retriable:
                    raise
                self.client.forget_routes()
                self._pause(self._fetching.retry_ms / 1000)
        raise AssertionError("the last attempt returns or raises")

    def call(
        self,
        topic: str,
        broker_name: str,
        header: Header | None,
        *,
        code: RequestCode | None = None,
        accept: Collection[int] = _DONE,
    ) -> Command:
        """One try; what fails names topic and broker."""
        try:
            addr = self.client.broker(topic, broker_name)
            return self.client.call(addr, header, code=code, accept=accept)
        except SparkError:
            raise
        except RocketQError as error:
            raise told_of(f"topic {topic} on {broker_name}", error) from None

    def pull(self, queue: QueueKey, offset: int, count_max: int, *, group: str | None = None) -> list[Record]:
        """Messages from this offset, up to a maximum; one attempt."""
        return self._pull(queue, offset, count_max, group, "*", ExpressionType.TAG)

    def require_sql(self, queue: QueueKey) -> None:
        """SparkError if the broker does not support SQL92 filters. It reports that with a general failure code, which
        tasks would treat as temporary."""
        fetching = self._fetching
        try:
            self._pull(queue, 0, 1, None, fetching.expression, fetching.expression_type)
        except SparkError as error:
            if ExpressionType.SQL92 in str(error):
                raise SparkError(str(error)) from None

    def _pull(
        self, queue: QueueKey, offset: int, count_max: int, group: str | None, expression: str, expression_type: str
    ) -> list[Record]:
        request = PullRequest(
            group=group or self._fetching.group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            count_max=count_max,
            sys_flag=int(PullFlag.SUBSCRIPTION),
            subscription=expression,
            expression_type=expression_type,
        )
        answer = self.call(queue.topic, queue.broker_name, request, accept=_PULLED)
        return decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
