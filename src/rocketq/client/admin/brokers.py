"""Brokers and clusters, for operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rocketq.client.core.routes import MASTER_ID
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import Outcomes, outcomes
from rocketq.client.session import Session
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.clients import Producer, ProducerTable
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.bodies.routes import ClusterTable
from rocketq.protocol.bodies.stats import ConsumeStatsList, ReplicationState, StatsData
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.config_text import decode_config, format_config
from rocketq.protocol.headers.admin import BrokerConsumeStatsRequest, StatsRequest
from rocketq.protocol.headers.nameserver import AddWritePermRequest, WipeWritePermRequest
from rocketq.protocol.requests import make_request
from rocketq.remoting.address import split_addr

CLEANINGS: Final = frozenset(
    {RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, RequestCode.CLEAN_UNUSED_TOPIC, RequestCode.DELETE_EXPIRED_COMMITLOG}
)
CLEAN_TIMEOUT_MS: Final = 30_000


class BrokerDirectory:
    """Brokers by name or address, as they are registered now."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def masters(self, cluster: str | None = None, broker: str | None = None) -> dict[str, str]:
        """Addresses by name: of all masters, those of a cluster, or one broker; NotFoundError if there are none."""
        if broker is not None:
            return dict([await self._one(broker)])
        table = await self._session.cluster()
        if cluster is not None and cluster not in table.clusters:
            raise NotFoundError("cluster", cluster)
        names = table.clusters[cluster] if cluster is not None else table.brokers
        found = {name: table.brokers[name].addrs for name in names if name in table.brokers}
        masters = {name: addrs[MASTER_ID] for name, addrs in sorted(found.items()) if MASTER_ID in addrs}
        if not masters:
            raise NotFoundError("broker", "with id 0", "no master is registered")
        return masters

    async def addr(self, broker: str) -> str:
        """Of a broker given by name or address."""
        return (await self._one(broker))[1]

    async def name_of(self, addr: str) -> str | None:
        """The broker that has registered this address; None if there is none."""
        table = await self._session.cluster()
        return next((name for name, data in table.brokers.items() if addr in data.addrs.values()), None)

    async def _one(self, broker: str) -> tuple[str, str]:
        if _is_addr(broker):
            return broker, broker
        table = await self._session.cluster()
        addrs = table.brokers[broker].addrs if broker in table.brokers else {}
        if not addrs:
            raise NotFoundError("broker", broker)
        return broker, addrs.get(MASTER_ID) or addrs[min(addrs)]


def _is_addr(text: str) -> bool:
    try:
        split_addr(text)
    except ConfigError:
        return False
    return True


class AsyncBrokers:
    """A broker is given by its name, which means its master, or by its address."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)

    async def cluster(self) -> ClusterTable:
        """All brokers that are registered now."""
        return await self._session.cluster()

    async def by_name_server(self) -> Outcomes[str, ClusterTable]:
        """What each NameServer believes, by its address."""
        command = make_request(None, opaque=0, code=RequestCode.GET_BROKER_CLUSTER_INFO)

        async def ask(addr: str) -> ClusterTable:
            return ClusterTable.decode((await self._session.exchange(addr, command)).body)

        return await outcomes({addr: ask(addr) for addr in await self._session.name_servers.find()})

    async def addr(self, broker: str) -> str:
        return await self._directory.addr(broker)

    async def status(self, broker: str) -> dict[str, str]:
        """Figures of a running broker under the names all RocketMQ tools use."""
        addr = await self._directory.addr(broker)
        answer = await self._session.call(addr, None, code=RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(sorted(KeyValues.decode(answer.body).table.items()))

    async def stats(self, broker: str, name: str, key: str) -> StatsData:
        """Counts and rates of one statistic, such as TOPIC_PUT_NUMS of a topic."""
        addr = await self._directory.addr(broker)
        return StatsData.decode((await self._session.call(addr, StatsRequest(name=name, key=key))).body)

    async def config(self, broker: str) -> dict[str, str]:
        """Every setting that is in effect."""
        addr = await self._directory.addr(broker)
        answer = await self._session.call(addr, None, code=RequestCode.GET_BROKER_CONFIG)
        return dict(sorted(decode_config(answer.body).items()))

    async def set_config(self, broker: str, changes: Mapping[str, str]) -> dict[str, str]:
        """Change settings while the broker runs; what they are then. A setting it does not have is NotFoundError."""
        if bad := [key for key, value in changes.items() if not key or "\n" in key + value]:
            raise ConfigError(f"no setting: {bad[0]!r}")
        known = await self.config(broker)
        for key in changes:
            if key not in known:
                raise NotFoundError("setting", key, f"{broker} has none of that name")
        addr = await self._directory.addr(broker)
        body = format_config(changes).encode()
        await self._session.call(addr, None, code=RequestCode.UPDATE_BROKER_CONFIG, body=body)
        after = await self.config(broker)
        return {key: after[key] for key in changes if key in after}

    async def replication(self, broker: str) -> ReplicationState:
        """Replicas as their master sees them, or the master as a replica sees it."""
        addr = await self._directory.addr(broker)
        return ReplicationState.decode(
            (await self._session.call(addr, None, code=RequestCode.GET_BROKER_HA_STATUS)).body
        )

    async def clean(self, broker: str, code: RequestCode) -> None:
        """Delete what is no longer needed: CLEAN_EXPIRED_CONSUMEQUEUE, CLEAN_UNUSED_TOPIC, DELETE_EXPIRED_COMMITLOG."""
        if code not in CLEANINGS:
            raise ConfigError(f"request {int(code)} cleans nothing")
        await self._session.call(await self._directory.addr(broker), None, code=code, timeout_ms=CLEAN_TIMEOUT_MS)

    async def set_writable(self, broker_name: str, writable: bool) -> None:
        """Give a broker's topics write permission in the routes of every NameServer, or take it for maintenance."""
        header = AddWritePermRequest if writable else WipeWritePermRequest
        await self._session.call_all_name_servers(header(broker_name=broker_name))

    async def consume_stats(self, broker: str) -> ConsumeStatsList:
        """Progress of all groups that committed offsets to a broker."""
        addr = await self._directory.addr(broker)
        answer = await self._session.call(addr, BrokerConsumeStatsRequest(order=False))
        return ConsumeStatsList.decode(answer.body)

    async def producers(self, broker: str) -> dict[str, tuple[Producer, ...]]:
        """Connected producers by group."""
        addr = await self._directory.addr(broker)
        answer = await self._session.call(addr, None, code=RequestCode.GET_ALL_PRODUCER_INFO)
        return dict(sorted(ProducerTable.decode(answer.body).groups.items()))
