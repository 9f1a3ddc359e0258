"""Metrics and health of a NameServer over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from rocketq.nameserver.config import NameServerConfig
from rocketq.nameserver.route_table import RouteTable
from rocketq.protocol.metrics_config import ExporterType, exporter_type
from rocketq.remoting import Server
from rocketq.remoting.observability import ObservabilityServer
from rocketq.runtime.health import HealthChecks
from rocketq.runtime.metrics import Counters, Registry, Snapshot, counter, gauge

BROKERS: Final = gauge("rocketq_nameserver_brokers", "Registered brokers, slaves included.")
TOPICS: Final = gauge("rocketq_nameserver_topics", "Topics with a route.")
EXPIRED: Final = counter("rocketq_nameserver_expired_brokers_total", "Brokers removed because they fell silent.")
CONNECTIONS: Final = gauge("rocketq_connections", "Open connections.", "protocol", "tls")
CERTIFICATE_DAYS: Final = gauge(
    "rocketq_tls_certificate_days_left", "Days until the configured TLS certificate expires.", adds_up=False
)
FAMILIES: Final = (BROKERS, TOPICS, EXPIRED, CONNECTIONS, CERTIFICATE_DAYS)


class NameServerObservability:
    def __init__(self, config: NameServerConfig, routes: RouteTable, server: Callable[[], Server]) -> None:
        self._config = config
        self._routes = routes
        self._server = server
        self._expired = Counters(EXPIRED)
        self._expired.add((), 0)
        self.registry = Registry({"node_type": "namesrv"})
        self.registry.add(self._collect, self._expired.collect)
        checks = HealthChecks(started={"listening": lambda: None if server().port else "not listening yet"})
        self._http = ObservabilityServer(self.registry, checks)

    @property
    def addr(self) -> str | None:
        """Where metrics are served; None when they are not."""
        return self._http.addr if self._http.port else None

    async def start(self) -> None:
        if exporter_type(self._config.metrics_exporter) is ExporterType.PROM:
            await self._http.start(self._config.metrics_host or self._config.host, self._config.metrics_port)

    async def stop(self) -> None:
        if self._http.port:
            await self._http.stop()

    def expired(self, count: int) -> None:
        """Count brokers that were removed because they fell silent."""
        self._expired.add((), count)

    def _collect(self, snapshot: Snapshot) -> Iterator[None]:
        snapshot.add(BROKERS, (), len(self._routes.live))
        snapshot.add(TOPICS, (), len(self._routes.topics))
        counts = {"false": 0, "true": 0}
        for connection in self._server().connections:
            counts["true" if connection.is_encrypted else "false"] += 1
        for encrypted, count in counts.items():
            snapshot.add(CONNECTIONS, ("remoting", encrypted), count)
        if (days_left := self._server().certificate_days_left) is not None:
            snapshot.add(CERTIFICATE_DAYS, (), days_left)
        yield
