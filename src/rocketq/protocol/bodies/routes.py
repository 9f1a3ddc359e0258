"""Where topics and brokers are.

Broker ids are written as quoted keys, which every client reads, and without any whitespace: the Go client cuts the
text of the addresses at commas and colons.
"""

from __future__ import annotations

from typing import Any

from rocketq.protocol.bodies.json_body import Body, body, member


@body
class BrokerData(Body):
    """The addresses of one broker name by broker id; 0 is the master."""

    cluster: str = member("cluster", default="")
    broker_name: str = member("brokerName")
    addrs: dict[int, str] = member("brokerAddrs", factory=dict)
    acting_master: bool | None = member("enableActingMaster", default=None)
    zone: str | None = member("zoneName", default=None)


@body
class QueueData(Body):
    """How many queues a topic has on one broker. The flag has two names, in older and in newer clients."""

    broker_name: str = member("brokerName")
    read_queue_count: int = member("readQueueNums", default=0)
    write_queue_count: int = member("writeQueueNums", default=0)
    perm: int = member("perm", default=0)
    topic_sys_flag: int = member("topicSysFlag", twin="topicSynFlag", default=0)


@body
class TopicRoute(Body):
    order_config: str | None = member("orderTopicConf", default=None)
    queues: tuple[QueueData, ...] = member("queueDatas", default=())
    brokers: tuple[BrokerData, ...] = member("brokerDatas", default=())
    filter_servers: dict[str, tuple[str, ...]] = member("filterServerTable", factory=dict)
    queue_mappings: dict[str, Any] | None = member("topicQueueMappingByBroker", default=None)


@body
class ClusterTable(Body):
    """All brokers by name, and the broker names of each cluster."""

    brokers: dict[str, BrokerData] = member("brokerAddrTable", factory=dict)
    clusters: dict[str, tuple[str, ...]] = member("clusterAddrTable", factory=dict)


@body
class MemberGroup(Body):
    cluster: str = member("cluster", default="")
    broker_name: str = member("brokerName")
    addrs: dict[int, str] = member("brokerAddrs", factory=dict)


@body
class MemberGroupAnswer(Body):
    group: MemberGroup | None = member("brokerMemberGroup", default=None)
