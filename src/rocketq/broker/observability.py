"""Metrics and health of a broker over HTTP. It outlives the store, so that a recovery can be observed."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable, Iterator
from typing import Final

from rocketq import __version__
from rocketq.broker.composition import Subsystems
from rocketq.broker.config import BrokerConfig
from rocketq.broker.fastpath.fast_path import BrokerFastPath
from rocketq.broker.stats import families
from rocketq.broker.stats.collectors import BrokerCollector, BrokerTables
from rocketq.broker.stats.lag_metrics import LagCollector, LagPorts
from rocketq.kernel import compiled
from rocketq.protocol.metrics_config import ExporterType, exporter_type, parse_labels
from rocketq.remoting import Server
from rocketq.remoting.observability import ObservabilityServer
from rocketq.runtime.health import HealthChecks
from rocketq.runtime.metrics import Registry, Snapshot

NODE_TYPE: Final = "broker"


class BrokerObservability:
    """The endpoint of one broker. `attach` and `detach` follow its store."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._collector: BrokerCollector | None = None
        self._parts: Subsystems | None = None
        labels = {
            "cluster": config.cluster,
            "node_type": NODE_TYPE,
            "node_id": config.name,
            "broker_id": str(config.broker_id),
            **parse_labels(config.metrics_labels),
        }
        self.registry = Registry(labels, series_max=config.metrics_series_max)
        self.health = HealthChecks(
            started={"store": self._store_open},
            ready={
                "writes": self._writable,
                "registration": self._registered,
                "replicas": self._replicated,
            },
        )
        self._server = ObservabilityServer(self.registry, self.health)
        self.registry.add(self._collect)

    @property
    def is_enabled(self) -> bool:
        return exporter_type(self._config.metrics_exporter) is ExporterType.PROM

    @property
    def port(self) -> int:
        """The port in use; 0 while nothing is served."""
        return self._server.port

    @property
    def addr(self) -> str | None:
        """Where metrics are served; None when they are not."""
        return self._server.addr if self._server.port else None

    async def start(self) -> None:
        if self.is_enabled and not self._server.port:
            await self._server.start(self._config.metrics_host or self._config.host, self._config.metrics_port)

    async def stop(self) -> None:
        if self._server.port:
            await self._server.stop()

    def attach(
        self,
        parts: Subsystems,
        servers: Callable[[], list[Server]],
        fast_paths: list[BrokerFastPath],
        collect: Callable[[], None],
    ) -> None:
        """The store is open and requests are served."""
        groups = parts.groups
        lag = LagPorts(
            groups=groups.table,
            topics=parts.admission.topics,
            consumers=groups.consumers,
            offsets=groups.offsets,
            positions=groups.positions,
            store=parts.store,
            clock=parts.clock,
        )
        tables = BrokerTables(
            parts.settings,
            parts.store,
            parts.admission.topics,
            groups,
            parts.transactions,
            parts.delay,
            parts.stats.broker_stats,
            LagCollector(lag),
            parts.clock,
            held_pulls=lambda: len(parts.pull.polling),
            servers=servers,
            waiting_answers=lambda: sum(path.waiting_answers for path in fast_paths),
            replication=parts.ha.replication.state,
            before=collect,
        )
        self._parts, self._collector = parts, BrokerCollector(tables)

    def detach(self) -> None:
        """The store is closed."""
        self._parts = self._collector = None

    def _collect(self, snapshot: Snapshot) -> Iterator[None]:
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        kernel = "compiled" if compiled else "interpreted"
        snapshot.add(families.BUILD_INFO, (__version__, platform.python_version(), kernel, loop), 1)
        access = None if self._parts is None else self._parts.access.service
        for decision, count in sorted(access.control.counts.items()) if access is not None else ():
            snapshot.add(families.ACCESS, (decision,), count)
        if self._collector is not None:
            yield from self._collector(snapshot)

    # health

    def _store_open(self) -> str | None:
        return None if self._parts is not None else "the store is not open yet: recovery or start in progress"

    def _writable(self) -> str | None:
        if self._parts is None or self._parts.settings.config.is_slave:
            return None
        return self._parts.store.refusal

    def _registered(self) -> str | None:
        return None if self._parts is None else self._parts.registrar.check_registered()

    def _replicated(self) -> str | None:
        if self._parts is None:
            return None
        if self._parts.settings.config.is_slave:
            active = self._parts.ha.replication.state().master.active
            return None if active else "not connected to the master"
        gate = self._parts.store.replica_gate
        if gate is not None and not gate.is_available(self._parts.store.log_end):
            return "no slave is connected and close enough for SYNC_MASTER"
        return None
