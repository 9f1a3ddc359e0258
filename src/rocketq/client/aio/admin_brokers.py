"""The cluster and its brokers, for operators."""

from __future__ import annotations

from collections.abc import Mapping

from rocketq.client.aio.broker_directory import BrokerDirectory
from rocketq.client.aio.session import Session
from rocketq.client.errors import NotFoundError
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.clients import Producer, ProducerTable
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.bodies.routes import ClusterTable
from rocketq.protocol.bodies.stats import BrokerStats
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.config_text import decode_config, format_config
from rocketq.protocol.headers.admin import StatsRequest


class AsyncBrokers:
    """A broker is given by its name, which means its master, or by its address."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)

    async def cluster(self) -> ClusterTable:
        """All brokers that are registered now."""
        return await self._session.cluster()

    async def addr(self, broker: str) -> str:
        return await self._directory.addr(broker)

    async def status(self, broker: str) -> dict[str, str]:
        """Figures of a running broker under the names all RocketMQ tools use."""
        addr = await self._directory.addr(broker)
        answer = await self._session.call(addr, None, code=RequestCode.GET_BROKER_RUNTIME_INFO)
        return dict(sorted(KeyValues.decode(answer.body).table.items()))

    async def stats(self, broker: str, name: str, key: str) -> BrokerStats:
        """Counts and rates of one statistic, such as TOPIC_PUT_NUMS of a topic."""
        addr = await self._directory.addr(broker)
        return BrokerStats.decode((await self._session.call(addr, StatsRequest(name=name, key=key))).body)

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

    async def producers(self, broker: str) -> dict[str, tuple[Producer, ...]]:
        """Connected producers by group."""
        addr = await self._directory.addr(broker)
        answer = await self._session.call(addr, None, code=RequestCode.GET_ALL_PRODUCER_INFO)
        return dict(sorted(ProducerTable.decode(answer.body).groups.items()))
