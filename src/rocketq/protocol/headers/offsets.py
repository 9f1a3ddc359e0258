"""Offsets of groups and of queues."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire


@header
class QueryOffsetRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_CONSUMER_OFFSET
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    zero_if_none: bool | None = wire("setZeroIfNotFound", default=None)


@header
class UpdateOffsetRequest(Header):
    CODE: ClassVar = RequestCode.UPDATE_CONSUMER_OFFSET
    group: str = wire("consumerGroup")
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    commit_offset: I64 = wire("commitOffset")


@header
class SearchOffsetRequest(Header):
    CODE: ClassVar = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    timestamp_ms: I64 = wire("timestamp")
    boundary: str | None = wire("boundaryType", default=None)


@header
class MaxOffsetRequest(Header):
    CODE: ClassVar = RequestCode.GET_MAX_OFFSET
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")
    committed: bool | None = wire("committed", default=None)


@header
class MinOffsetRequest(Header):
    CODE: ClassVar = RequestCode.GET_MIN_OFFSET
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")


@header
class EarliestTimeRequest(Header):
    CODE: ClassVar = RequestCode.GET_EARLIEST_MSG_STORETIME
    topic: str = wire("topic")
    queue_id: I32 = wire("queueId")


@header
class OffsetResponse(Header):
    """The answer to a query, search, max or min."""

    queue_offset: I64 = wire("offset")


@header
class EarliestTimeResponse(Header):
    timestamp_ms: I64 = wire("timestamp")


@header
class ResetOffsetRequest(Header):
    """From a tool to the broker; a timestamp of -1 means the end."""

    CODE: ClassVar = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
    topic: str = wire("topic")
    group: str = wire("group")
    timestamp_ms: I64 = wire("timestamp")
    force: bool = wire("isForce")
    queue_id: I32 | None = wire("queueId", default=None)
    queue_offset: I64 | None = wire("offset", default=None)


@header
class ResetClientOffsetRequest(Header):
    """From the broker to each consumer."""

    CODE: ClassVar = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
    topic: str = wire("topic")
    group: str = wire("group")
    timestamp_ms: I64 = wire("timestamp")
    force: bool = wire("isForce", default=False)


@header
class ConsumerStatusRequest(Header):
    """From a tool to the broker; `client_id` picks one consumer."""

    CODE: ClassVar = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
    topic: str = wire("topic")
    group: str = wire("group")
    client_id: str | None = wire("clientAddr", default=None)


@header
class ClientStatusRequest(Header):
    """From the broker to a consumer."""

    CODE: ClassVar = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
    topic: str = wire("topic")
    group: str = wire("group")
    client_id: str | None = wire("clientAddr", default=None)


@header
class CorrectionOffsetRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_CORRECTION_OFFSET
    filter_groups: str | None = wire("filterGroups", default=None)
    group: str = wire("compareGroup")
    topic: str = wire("topic")


@header
class CloneOffsetRequest(Header):
    CODE: ClassVar = RequestCode.CLONE_GROUP_OFFSET
    source_group: str = wire("srcGroup")
    target_group: str = wire("destGroup")
    topic: str | None = wire("topic", default=None)
    offline: bool = wire("offline", default=False)
