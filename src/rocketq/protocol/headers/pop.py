"""POP: messages handed out one by one and acknowledged one by one."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire


@header
class PopRequest(Header):
    CODE: ClassVar = RequestCode.POP_MESSAGE
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    count_max: I32 = wire("maxMsgNums")
    invisible_ms: I64 = wire("invisibleTime")
    poll_ms: I64 = wire("pollTime")
    born_ms: I64 = wire("bornTime")
    init_mode: I32 = wire("initMode")
    expression_type: str | None = wire("expType", default=None)
    expression: str | None = wire("exp", default=None)
    order: bool = wire("order", default=False)
    attempt_id: str | None = wire("attemptId", default=None)


@header
class PopResponse(Header):
    """The three texts give the queue offsets of the body's messages; see `pop_handles`."""

    pop_ms: I64 = wire("popTime")
    invisible_ms: I64 = wire("invisibleTime")
    revive_queue_id: I32 = wire("reviveQid")
    rest_count: I64 = wire("restNum")
    start_offsets: str | None = wire("startOffsetInfo", default=None)
    message_offsets: str | None = wire("msgOffsetInfo", default=None)
    order_counts: str | None = wire("orderCountInfo", default=None)


@header
class AckRequest(Header):
    CODE: ClassVar = RequestCode.ACK_MESSAGE
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    handle: str = wire("extraInfo")
    queue_offset: I64 = wire("offset")


@header
class PeekRequest(Header):
    CODE: ClassVar = RequestCode.PEEK_MESSAGE
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    count_max: I32 = wire("maxMsgNums")


@header
class ChangeInvisibleRequest(Header):
    CODE: ClassVar = RequestCode.CHANGE_MESSAGE_INVISIBLETIME
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    handle: str = wire("extraInfo")
    queue_offset: I64 = wire("offset")
    invisible_ms: I64 = wire("invisibleTime")


@header
class ChangeInvisibleResponse(Header):
    pop_ms: I64 = wire("popTime")
    invisible_ms: I64 = wire("invisibleTime")
    revive_queue_id: I32 = wire("reviveQid")


@header
class NotificationRequest(Header):
    CODE: ClassVar = RequestCode.NOTIFICATION
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    poll_ms: I64 = wire("pollTime")
    born_ms: I64 = wire("bornTime")
    order: bool = wire("order", default=False)
    attempt_id: str | None = wire("attemptId", default=None)


@header
class NotificationResponse(Header):
    has_message: bool = wire("hasMsg")
    polling_full: bool | None = wire("pollingFull", default=None)


@header
class PollingInfoRequest(Header):
    CODE: ClassVar = RequestCode.POLLING_INFO
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")


@header
class PollingInfoResponse(Header):
    count: I32 = wire("pollingNum")
