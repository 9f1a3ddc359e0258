"""Consumer groups: their configuration, subscriptions and progress."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, Header, header, wire


@header
class DeleteGroupRequest(Header):
    """The switch has one name in 4.9 and another in 5.x; the newer is written."""

    CODE: ClassVar = RequestCode.DELETE_SUBSCRIPTIONGROUP
    group: str = wire("groupName")
    clean_offset: bool = wire("cleanOffset", also="removeOffset", default=False)


@header
class GroupConfigRequest(Header):
    CODE: ClassVar = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
    group: str = wire("group")


@header
class AllGroupConfigRequest(Header):
    """Newer tools page; without these fields everything is answered."""

    CODE: ClassVar = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
    first_index: I32 | None = wire("groupSeq", default=None)
    data_version: str | None = wire("dataVersion", default=None)
    count_max: I32 | None = wire("maxGroupNum", default=None)


@header
class AllGroupConfigResponse(Header):
    total_count: I32 | None = wire("totalGroupNum", default=None)


@header
class GroupForbiddenRequest(Header):
    CODE: ClassVar = RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN
    group: str = wire("group")
    topic: str = wire("topic")
    readable: bool | None = wire("readable", default=None)


@header
class ConsumeStatsRequest(Header):
    CODE: ClassVar = RequestCode.GET_CONSUME_STATS
    group: str = wire("consumerGroup")
    topic: str | None = wire("topic", default=None)
    topics: str | None = wire("topicList", default=None)


@header
class GroupTopicsRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_TOPICS_BY_CONSUMER
    group: str = wire("group")


@header
class GroupSubscriptionRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER
    group: str = wire("group")
    topic: str | None = wire("topic", default=None)
