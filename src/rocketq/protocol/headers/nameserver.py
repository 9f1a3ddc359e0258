"""NameServer: routes, brokers, key-value config."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire


@header
class PutConfigRequest(Header):
    CODE: ClassVar = RequestCode.PUT_KV_CONFIG
    namespace: str = wire("namespace")
    key: str = wire("key")
    value: str = wire("value", default="")


@header
class GetConfigRequest(Header):
    CODE: ClassVar = RequestCode.GET_KV_CONFIG
    namespace: str = wire("namespace")
    key: str = wire("key")


@header
class GetConfigResponse(Header):
    value: str | None = wire("value", default=None)


@header
class DeleteConfigRequest(Header):
    CODE: ClassVar = RequestCode.DELETE_KV_CONFIG
    namespace: str = wire("namespace")
    key: str = wire("key")


@header
class ListConfigRequest(Header):
    CODE: ClassVar = RequestCode.GET_KVLIST_BY_NAMESPACE
    namespace: str = wire("namespace")


@header
class RegisterBrokerRequest(Header):
    """`body_crc` 0 means: not checked."""

    CODE: ClassVar = RequestCode.REGISTER_BROKER
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster: str = wire("clusterName")
    ha_addr: str | None = wire("haServerAddr", default=None)
    broker_id: I64 = wire("brokerId")
    compressed: bool = wire("compressed", default=False)
    body_crc: I32 = wire("bodyCrc32", default=0)
    heartbeat_timeout_ms: I64 | None = wire("heartbeatTimeoutMillis", default=None)
    acting_master: bool | None = wire("enableActingMaster", default=None)


@header
class RegisterBrokerResponse(Header):
    """Sent to slaves only."""

    ha_addr: str | None = wire("haServerAddr", default=None)
    master_addr: str | None = wire("masterAddr", default=None)


@header
class UnregisterBrokerRequest(Header):
    CODE: ClassVar = RequestCode.UNREGISTER_BROKER
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster: str = wire("clusterName")
    broker_id: I64 = wire("brokerId")


@header
class QueryDataVersionRequest(Header):
    CODE: ClassVar = RequestCode.QUERY_DATA_VERSION
    broker_name: str = wire("brokerName")
    broker_addr: str = wire("brokerAddr")
    cluster: str = wire("clusterName")
    broker_id: I64 = wire("brokerId")


@header
class QueryDataVersionResponse(Header):
    changed: bool = wire("changed")


@header
class RouteRequest(Header):
    """Without a topic it is answered like an unknown one."""

    CODE: ClassVar = RequestCode.GET_ROUTEINFO_BY_TOPIC
    topic: str = wire("topic", default="")
    strict_json: bool | None = wire("acceptStandardJsonOnly", default=None)


@header
class WipeWritePermRequest(Header):
    CODE: ClassVar = RequestCode.WIPE_WRITE_PERM_OF_BROKER
    broker_name: str = wire("brokerName")


@header
class WipeWritePermResponse(Header):
    count: I32 = wire("wipeTopicCount")


@header
class AddWritePermRequest(Header):
    CODE: ClassVar = RequestCode.ADD_WRITE_PERM_OF_BROKER
    broker_name: str = wire("brokerName")


@header
class AddWritePermResponse(Header):
    count: I32 = wire("addTopicCount")


@header
class ForgetTopicRequest(Header):
    CODE: ClassVar = RequestCode.DELETE_TOPIC_IN_NAMESRV
    topic: str = wire("topic")
    cluster: str | None = wire("clusterName", default=None)


@header
class RegisterTopicRequest(Header):
    CODE: ClassVar = RequestCode.REGISTER_TOPIC_IN_NAMESRV
    topic: str = wire("topic")


@header
class ClusterTopicsRequest(Header):
    CODE: ClassVar = RequestCode.GET_TOPICS_BY_CLUSTER
    cluster: str = wire("cluster")


@header
class MemberGroupRequest(Header):
    CODE: ClassVar = RequestCode.GET_BROKER_MEMBER_GROUP
    cluster: str = wire("clusterName")
    broker_name: str = wire("brokerName")


@header
class BrokerHeartbeatRequest(Header):
    """To a NameServer or a controller."""

    CODE: ClassVar = RequestCode.BROKER_HEARTBEAT
    cluster: str = wire("clusterName")
    broker_addr: str = wire("brokerAddr")
    broker_name: str = wire("brokerName")
    broker_id: I64 | None = wire("brokerId", default=None)
    epoch: I32 | None = wire("epoch", default=None)
    max_offset: I64 | None = wire("maxOffset", default=None)
    confirm_offset: I64 | None = wire("confirmOffset", default=None)
    heartbeat_timeout_ms: I64 | None = wire("heartbeatTimeoutMills", default=None)
    election_priority: I32 | None = wire("electionPriority", default=None)
