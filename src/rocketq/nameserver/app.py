"""The NameServer: route table, handlers, server, and the periodic removal of expired brokers."""

from __future__ import annotations

import asyncio
import logging

from rocketq.access.config import require_safe_address
from rocketq.access.service import RELOAD_MS, AccessService, open_access
from rocketq.nameserver.config import NameServerConfig
from rocketq.nameserver.handlers import Ports, handlers
from rocketq.nameserver.kv_config import KvConfig
from rocketq.nameserver.observability import NameServerObservability
from rocketq.nameserver.route_table import RouteTable
from rocketq.nameserver.settings import Settings
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, Dispatcher, Server, TlsConfig
from rocketq.runtime.clock import Clock, SystemClock
from rocketq.runtime.file_limit import raise_file_limit

log = logging.getLogger(__name__)

_FIRST_SCAN_S = 5


class NameServer:
    """Runs on the event loop that starts it; routes are kept in memory, the key-value config in a file."""

    def __init__(
        self,
        config: NameServerConfig | None = None,
        *,
        tls: TlsConfig | None = None,
        access: AccessService | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`access`: the access control of a broker in this process; without it the settings decide."""
        self._config = config or NameServerConfig()
        self._clock = clock or SystemClock()
        self._shared_access = access is not None
        self._access = access
        self._reloading: asyncio.Task[None] | None = None
        self._routes = RouteTable()
        self.dispatcher = Dispatcher(
            handlers_per_connection_max=self._config.requests_per_connection_max,
            handlers_per_address_max=self._config.requests_per_address_max,
        )
        self._settings = Settings(self._config)
        ports = Ports(self._routes, KvConfig(self._config.kv_path, self._config.kv_limits), self._settings, self._clock)
        handlers.bind(self.dispatcher, ports)
        self._server = Server(self.dispatcher, limits=self._config.limits(self._config.idle_seconds), tls=tls)
        self._server.add_close_callback(self._disconnected)
        self.observability = NameServerObservability(self._config, self._routes, lambda: self._server)
        self._scanning: asyncio.Task[None] | None = None

    @property
    def addr(self) -> str:
        return self._server.addr

    @property
    def port(self) -> int:
        return self._server.port

    async def start(self) -> None:
        """Listen; `addr` is the address."""
        raise_file_limit()
        await self._open_access()
        await self._server.start(self._config.host, self._config.port)
        await self.observability.start()
        self._settings.set_port(self.port)
        self._scanning = asyncio.get_running_loop().create_task(self._scan_regularly())
        log.info("NameServer listens on %s", self.addr)

    async def stop(self, drain_ms: int = 3_000) -> None:
        if self._scanning is not None:
            self._scanning.cancel()
            self._scanning = None
        await self.observability.stop()
        await self._server.stop(drain_ms)
        if self._reloading is not None and self._access is not None:
            self._reloading.cancel()
            await self._access.stop()
        log.info("NameServer stopped")

    async def _open_access(self) -> None:
        """ConfigError when it listens beyond this machine and everybody may do everything."""
        config = self._config
        if self._access is None:
            root = config.kv_path.parent
            self._access = await asyncio.to_thread(open_access, config.access, root, "DefaultCluster", self._clock)
        require_safe_address(config.host, config.access, "the NameServer")
        if self._access is None:
            return
        self.dispatcher.checks.append(self._check_access)
        if not self._shared_access and self._reloading is None:
            self._access.start()
            self._reloading = asyncio.get_running_loop().create_task(self._reload_regularly(self._access))

    async def _reload_regularly(self, access: AccessService) -> None:
        while True:
            await asyncio.sleep(RELOAD_MS / 1000)
            await access.reload()

    def _check_access(self, request: Command, connection: Connection) -> Command | None:
        assert self._access is not None
        denial = self._access.control.check(
            request,
            connection.peer_host,
            is_served=lambda: request.code in self.dispatcher.codes,
            serves_routes=True,
        )
        return None if denial is None else denial.answer(request)

    def scan(self) -> None:
        """Remove brokers whose registration expired, and close their connections."""
        expired = self._routes.expire(self._clock.monotonic_ms())
        self.observability.expired(len(expired))
        for connection in expired:
            assert isinstance(connection, Connection)
            connection.close("the registration of its broker expired")

    async def _scan_regularly(self) -> None:
        await asyncio.sleep(min(_FIRST_SCAN_S, self._config.scan_interval_ms / 1000))
        while True:
            self.scan()
            await asyncio.sleep(self._config.scan_interval_ms / 1000)

    def _disconnected(self, connection: Connection) -> None:
        for addr in self._routes.disconnect(connection):
            log.info("broker removed because its connection closed: addr=%s", addr)
