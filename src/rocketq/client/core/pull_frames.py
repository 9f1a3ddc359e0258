"""Frames of pulls, made of what is the same for all pulls of a queue and what is not.

They are byte for byte what the general way (a typed header, a command, its JSON) gives, at a fraction of the cost.
"""

from __future__ import annotations

from json.encoder import encode_basestring  # the C function where there is one

from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.versions import OUR_VERSION


class PullTemplate:
    """Pulls of one queue by one group, with one subscription."""

    def __init__(
        self, group: str, queue: MessageQueue, subscription: Subscription, *, count_max: int, with_expression: bool
    ) -> None:
        self.subscription = subscription
        self.count_max = count_max
        names = [encode_basestring(name) for name in (group, queue.topic)]
        self._start = (
            f'{{"code":{int(RequestCode.PULL_MESSAGE)},"extFields":{{"consumerGroup":{names[0]},"topic":{names[1]},'
            f'"queueId":"{queue.queue_id}","queueOffset":"'
        )
        self._middle = f'","maxMsgNums":"{count_max}","sysFlag":"'
        expression = f'"subscription":{encode_basestring(subscription.expression)},' if with_expression else ""
        version = 0 if with_expression else subscription.version
        self._end = (
            f'",{expression}"subVersion":"{version}",'
            f'"expressionType":{encode_basestring(subscription.expression_type)}}},'
            f'"flag":0,"language":"PYTHON","opaque":'
        )
        self._last = f',"serializeTypeCurrentRPC":"JSON","version":{OUR_VERSION}}}'

    def frame(self, opaque: int, queue_offset: int, sys_flag: int, commit_offset: int, hold_ms: int) -> bytes:
        """The whole frame; it has no body."""
        header = (
            f'{self._start}{queue_offset}{self._middle}{sys_flag}","commitOffset":"{commit_offset}",'
            f'"suspendTimeoutMillis":"{hold_ms}{self._end}{opaque}{self._last}'
        ).encode("utf-8", "replace")
        return (4 + len(header) << 32 | len(header)).to_bytes(8, "big") + header
