"""Pulling messages."""

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
    """Ours: of the machine whose files the reader sees. A broker there may answer with places in place of records."""

    @property
    def flags(self) -> PullFlag:
        return PullFlag(self.sys_flag & 0x1F)


@header
class PullResponse(Header):
    """In every answer to a pull, failed or not, as far as the broker came."""

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
