"""Pulls, queries, and returning a message for redelivery."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.flags import PullFlag
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire


@header
class PullRequest(Header):
    """Also LITE_PULL_MESSAGE, which means the same."""

    CODE: ClassVar = RequestCode.PULL_MESSAGE
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    queue_offset: I64 = wire("queueOffset")
    count_max: I32 = wire("maxMsgNums")
    sys_flag: I32 = wire("sysFlag")
    commit_offset: I64 = wire("commitOffset", default=0)
    hold_ms: I64 = wire("suspendTimeoutMillis", default=0)
    subscription: str | None = wire("subscription", default=None)
    subscription_version: I64 = wire("subVersion", default=0)
    expression_type: str | None = wire("expressionType", default=None)
    bytes_max: I32 | None = wire("maxMsgBytes", default=None)
    request_source: I32 | None = wire("requestSource", default=None)
    proxied_client_id: str | None = wire("proxyFrowardClientId", default=None)
    reader_boot_id: str | None = wire("readerBootId", default=None)
    """RocketQ only: the boot id of the reader's machine. A broker on it may answer with file locations of records."""

    @property
    def flags(self) -> PullFlag:
        return PullFlag(self.sys_flag & 0x1F)


@header
class PullResponse(Header):
    """Fields of every answer to a pull; a failed one may lack some."""

    suggested_broker_id: I64 = wire("suggestWhichBrokerId", default=0)
    next_offset: I64 = wire("nextBeginOffset")
    min_offset: I64 = wire("minOffset")
    max_offset: I64 = wire("maxOffset")
    offset_delta: I64 | None = wire("offsetDelta", default=None)
    topic_sys_flag: I32 | None = wire("topicSysFlag", default=None)
    group_sys_flag: I32 | None = wire("groupSysFlag", default=None)
    forbidden_type: I32 | None = wire("forbiddenType", default=None)
    log_folder: str | None = wire("logFolder", default=None)
    """Ours, as what follows: the body has places of records in the log's files there."""
    log_folder_id: str | None = wire("logFolderId", default=None)
    log_file_bytes: I64 | None = wire("logFileBytes", default=None)
    placed_bytes: I64 | None = wire("placedBytes", default=None)


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
    failure: str | None = wire("failure", default=None)
    """Why the consumer failed, from our clients; a broker of ours keeps it with the message."""


@header
class QueryQueueRequest(Header):
    """Entries of a consume queue, for tools."""

    CODE: ClassVar = RequestCode.QUERY_CONSUME_QUEUE
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    queue_offset: I64 = wire("index")
    count_max: I32 = wire("count")
    group: str | None = wire("consumerGroup", default=None)
