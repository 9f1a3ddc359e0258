"""Finding messages, and giving them back."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire


@header
class QueryMessageRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_MESSAGE
    topic: str = wire("topic")
    key: str = wire("key")
    count_max: I32 = wire("maxNum")
    begin_ms: I64 = wire("beginTimestamp")
    end_ms: I64 = wire("endTimestamp")
    by_unique_key: bool | None = wire("_UNIQUE_KEY_QUERY", default=None)


@header
class QueryMessageResponse(Header):
    index_updated_ms: I64 = wire("indexLastUpdateTimestamp")
    index_log_offset: I64 = wire("indexLastUpdatePhyoffset")


@header
class ViewMessageRequest(Header):
    CODE: ClassVar = RequestCode.VIEW_MESSAGE_BY_ID
    log_offset: I64 = wire("offset")
    topic: str | None = wire("topic", default=None)


@header
class SendBackRequest(Header):
    """A consumer failed: deliver the message at this place in the log again, later."""

    CODE: ClassVar = RequestCode.CONSUMER_SEND_MSG_BACK
    log_offset: I64 = wire("offset")
    group: str = wire("group")
    delay_level: I32 = wire("delayLevel")
    origin_message_id: str | None = wire("originMsgId", default=None)
    origin_topic: str | None = wire("originTopic", default=None)
    unit_mode: bool = wire("unitMode", default=False)
    max_reconsume_times: I32 | None = wire("maxReconsumeTimes", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class QueryQueueRequest(Header):
    """Entries of a consume queue, for tools."""

    CODE: ClassVar = RequestCode.QUERY_CONSUME_QUEUE
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    queue_offset: I64 = wire("index")
    count_max: I32 = wire("count")
    group: str | None = wire("consumerGroup", default=None)
