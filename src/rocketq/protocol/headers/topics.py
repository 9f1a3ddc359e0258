"""Topics: create, delete, ask about."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, Header, header, wire


@header
class CreateTopicRequest(Header):
    CODE: ClassVar = RequestCode.UPDATE_AND_CREATE_TOPIC
    topic: str = wire("topic")
    default_topic: str | None = wire("defaultTopic", default=None)
    read_queue_count: I32 = wire("readQueueNums")
    write_queue_count: I32 = wire("writeQueueNums")
    perm: I32 = wire("perm")
    filter_type: str = wire("topicFilterType", default="SINGLE_TAG")
    topic_sys_flag: I32 = wire("topicSysFlag", default=0)
    order: bool = wire("order", default=False)
    attributes: str | None = wire("attributes", default=None)
    force: bool | None = wire("force", default=None)


@header
class CreateStaticTopicRequest(CreateTopicRequest):
    CODE: ClassVar = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC


@header
class DeleteTopicRequest(Header):
    CODE: ClassVar = RequestCode.DELETE_TOPIC_IN_BROKER
    topic: str = wire("topic")


@header
class TopicStatsRequest(Header):
    CODE: ClassVar = RequestCode.GET_TOPIC_STATS_INFO
    topic: str = wire("topic")


@header
class TopicConfigRequest(Header):
    CODE: ClassVar = RequestCode.GET_TOPIC_CONFIG
    topic: str = wire("topic")
    logical: bool | None = wire("lo", default=None)


@header
class AllTopicConfigRequest(Header):
    """Newer tools page; without these fields everything is answered."""

    CODE: ClassVar = RequestCode.GET_ALL_TOPIC_CONFIG
    first_index: I32 | None = wire("topicSeq", default=None)
    data_version: str | None = wire("dataVersion", default=None)
    count_max: I32 | None = wire("maxTopicNum", default=None)


@header
class AllTopicConfigResponse(Header):
    total_count: I32 | None = wire("totalTopicNum", default=None)


@header
class TopicConsumersRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_TOPIC_CONSUME_BY_WHO
    topic: str = wire("topic")


@header
class ConsumeTimeSpanRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_CONSUME_TIME_SPAN
    topic: str = wire("topic")
    group: str = wire("group")
