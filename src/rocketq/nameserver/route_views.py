"""Answer bodies computed from the route table."""

from __future__ import annotations

from collections.abc import Callable

from rocketq.nameserver.route_table import MASTER_ID, Broker, RouteTable
from rocketq.protocol.bodies.routes import BrokerData, ClusterTable, MemberGroup, TopicRoute
from rocketq.protocol.bodies.topics import TopicList
from rocketq.protocol.flags import TopicSysFlag

_UNIT = int(TopicSysFlag.UNIT)  # plain numbers: each operation on a flag of an enum makes a new one
_UNIT_SUB = int(TopicSysFlag.UNIT_SUB)


def topic_route(table: RouteTable, topic: str, order_config: str | None = None) -> TopicRoute | None:
    """The route of a topic; None when no live broker has it. A broker with slaves only is included, without id 0."""
    queues = table.topics.get(topic)
    if not queues:
        return None
    names = sorted(queues)
    return TopicRoute(
        order_config=order_config,
        queues=tuple(queues[name] for name in names),
        brokers=tuple(_broker_data(name, table.brokers[name]) for name in names),
        filter_servers=_filter_servers(table, names),
    )


def cluster_table(table: RouteTable) -> ClusterTable:
    return ClusterTable(
        brokers={name: _broker_data(name, broker) for name, broker in sorted(table.brokers.items())},
        clusters={cluster: tuple(names) for cluster, names in _clusters(table).items()},
    )


def all_topics(table: RouteTable) -> TopicList:
    return TopicList(topics=tuple(sorted(table.topics)))


def cluster_topics(table: RouteTable, cluster: str) -> TopicList:
    names = set(_clusters(table).get(cluster, ()))
    return TopicList(topics=tuple(sorted(topic for topic, queues in table.topics.items() if names & queues.keys())))


def system_topics(table: RouteTable) -> TopicList:
    """Cluster and broker names, each of which is a topic, and a broker that lists further system topics."""
    clusters = _clusters(table)
    names = dict.fromkeys(name for cluster, brokers in clusters.items() for name in (cluster, *brokers))
    return TopicList(topics=tuple(names), broker_addr=_any_addr(table))


def unit_topics(table: RouteTable) -> TopicList:
    return _topics_by_flag(table, lambda flag: bool(flag & _UNIT))


def unit_sub_topics(table: RouteTable) -> TopicList:
    return _topics_by_flag(table, lambda flag: bool(flag & _UNIT_SUB))


def unit_sub_only_topics(table: RouteTable) -> TopicList:
    return _topics_by_flag(table, lambda flag: bool(flag & _UNIT_SUB) and not flag & _UNIT)


def member_group(table: RouteTable, cluster: str, broker_name: str) -> MemberGroup:
    """The replicas of one broker name; empty when it is unknown."""
    broker = table.brokers.get(broker_name)
    return MemberGroup(cluster=cluster, broker_name=broker_name, addrs=_sorted_addrs(broker) if broker else {})


def _broker_data(name: str, broker: Broker) -> BrokerData:
    return BrokerData(
        cluster=broker.cluster, broker_name=name, addrs=_sorted_addrs(broker), acting_master=broker.acting_master
    )


def _sorted_addrs(broker: Broker) -> dict[int, str]:
    return dict(sorted(broker.addrs.items()))


def _filter_servers(table: RouteTable, names: list[str]) -> dict[str, tuple[str, ...]]:
    keys = ((name, addr) for name in names for addr in table.brokers[name].addrs.values())
    found = ((key[1], table.live[key].filter_servers) for key in keys if key in table.live)
    return {addr: servers for addr, servers in found if servers}


def _clusters(table: RouteTable) -> dict[str, list[str]]:
    clusters: dict[str, list[str]] = {}
    for name, broker in sorted(table.brokers.items()):
        clusters.setdefault(broker.cluster, []).append(name)
    return dict(sorted(clusters.items()))


def _any_addr(table: RouteTable) -> str | None:
    """The address of a master, else of any broker."""
    brokers = [broker for _, broker in sorted(table.brokers.items())]
    masters = [broker.addrs[MASTER_ID] for broker in brokers if MASTER_ID in broker.addrs]
    others = [addr for broker in brokers for addr in broker.addrs.values()]
    return next(iter(masters + others), None)


def _topics_by_flag(table: RouteTable, matches: Callable[[int], bool]) -> TopicList:
    """Topics by the flag of their first broker, as Apache does."""
    found = (topic for topic, queues in table.topics.items() if matches(next(iter(queues.values())).topic_sys_flag))
    return TopicList(topics=tuple(sorted(found)))
