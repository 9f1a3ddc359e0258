"""Brokers asked by operators: configuration, statistics, access control."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire


@header
class BrokerConfigResponse(Header):
    """`data_version` is a DataVersion as JSON text."""

    data_version: str | None = wire("version", default=None)


@header
class StatsRequest(Header):
    CODE: ClassVar = RequestCode.VIEW_BROKER_STATS_DATA
    name: str = wire("statsName")
    key: str = wire("statsKey")


@header
class BrokerConsumeStatsRequest(Header):
    CODE: ClassVar = RequestCode.GET_BROKER_CONSUME_STATS
    order: bool = wire("isOrder", default=False)


@header
class RegisterFilterServerRequest(Header):
    CODE: ClassVar = RequestCode.REGISTER_FILTER_SERVER
    addr: str = wire("filterServerAddr")


@header
class RegisterFilterServerResponse(Header):
    broker_name: str = wire("brokerName")
    broker_id: I64 = wire("brokerId")


@header
class UpdateAccountRequest(Header):
    """Lists are joined with commas, permissions written `name=PUB|SUB`."""

    CODE: ClassVar = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    access_key: str | None = wire("accessKey", default=None)
    secret_key: str | None = wire("secretKey", default=None)
    white_addr: str | None = wire("whiteRemoteAddress", default=None)
    admin: bool | None = wire("admin", default=None)
    default_topic_perm: str | None = wire("defaultTopicPerm", default=None)
    default_group_perm: str | None = wire("defaultGroupPerm", default=None)
    topic_perms: str | None = wire("topicPerms", default=None)
    group_perms: str | None = wire("groupPerms", default=None)


@header
class DeleteAccountRequest(Header):
    CODE: ClassVar = RequestCode.DELETE_ACL_CONFIG
    access_key: str = wire("accessKey", default="")


@header
class AccessVersionResponse(Header):
    """Versions are DataVersions as JSON text, one for the default file and a map for all."""

    data_version: str = wire("version")
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster: str = wire("clusterName")
    file_versions: str | None = wire("allAclFileVersion", default=None)


@header
class UpdateWhiteAddrsRequest(Header):
    CODE: ClassVar = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    addrs: str = wire("globalWhiteAddrs", default="")
    file: str | None = wire("aclFileFullPath", default=None)


@header
class UserRequest(Header):
    """Create, update, delete and get a user (3001 to 3004)."""

    CODE: ClassVar = RequestCode.AUTH_GET_USER
    username: str | None = wire("username", default=None)


@header
class ListUsersRequest(Header):
    CODE: ClassVar = RequestCode.AUTH_LIST_USER
    filter: str | None = wire("filter", default=None)
    sealed: bool = wire("sealed", default=False)
    """Ours: a slave asks for everything, encrypted with a key of the brokers' inner credentials."""


@header
class PolicyRequest(Header):
    """Create, update, delete and get a subject's policies (3006 to 3009)."""

    CODE: ClassVar = RequestCode.AUTH_GET_ACL
    subject: str | None = wire("subject", default=None)
    policy_type: str | None = wire("policyType", default=None)
    resource: str | None = wire("resource", default=None)


@header
class ListPoliciesRequest(Header):
    CODE: ClassVar = RequestCode.AUTH_LIST_ACL
    subject_filter: str | None = wire("subjectFilter", default=None)
    resource_filter: str | None = wire("resourceFilter", default=None)


@header
class ResetFlushOffsetRequest(Header):
    CODE: ClassVar = RequestCode.RESET_MASTER_FLUSH_OFFSET
    log_offset: I64 | None = wire("masterFlushOffset", default=None)


@header
class ReadModeRequest(Header):
    CODE: ClassVar = RequestCode.SET_COMMITLOG_READ_MODE
    mode: I32 = wire("READ_AHEAD_MODE")
