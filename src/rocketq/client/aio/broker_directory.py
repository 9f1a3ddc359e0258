"""Which brokers an operator means."""

from __future__ import annotations

from rocketq.client.aio.session import Session
from rocketq.client.core.routes import MASTER_ID
from rocketq.client.errors import NotFoundError
from rocketq.errors import ConfigError
from rocketq.remoting.address import split_addr


class BrokerDirectory:
    """Brokers by name or address, as they are registered now."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def masters(self, cluster: str | None = None, broker: str | None = None) -> dict[str, str]:
        """Addresses by name: of all masters, those of a cluster, or one broker alone; NotFoundError for none."""
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
        """Whose address it is; None when nobody has registered it."""
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
