"""`rocketq exporter`: metrics of any RocketMQ cluster under the names of rocketmq-exporter."""

from __future__ import annotations

import asyncio
import logging
import sys

import click

from rocketq.cli.commands.calling import Caller, calls_cluster, example
from rocketq.cli.exporter_names import ClusterMetrics
from rocketq.cli.logs import set_up_logs
from rocketq.cli.serving import serve
from rocketq.client.admin import AsyncAdmin
from rocketq.client.session import SessionConfig
from rocketq.errors import RocketQError
from rocketq.remoting.observability import ObservabilityServer
from rocketq.runtime.health import HealthChecks
from rocketq.runtime.metrics import Registry

log = logging.getLogger(__name__)


class Exporter:
    """Asks all brokers once per interval; scrapes get what the last round found."""

    def __init__(self, caller: Caller, host: str, port: int, interval_s: float) -> None:
        self._caller = caller
        self._host = host
        self._port = port
        self._interval_s = interval_s
        self._metrics = ClusterMetrics()
        registry = Registry({})
        registry.add(self._metrics.collect)
        checks = HealthChecks(ready={"cluster": lambda: self._metrics.failure})
        self._server = ObservabilityServer(registry, checks)
        self._task: asyncio.Task[None] | None = None
        self._admin: AsyncAdmin | None = None

    async def start(self) -> None:
        caller = self._caller
        config = SessionConfig(control_timeout_ms=caller.timeout_ms, tls=caller.tls, credentials=caller.credentials)
        self._admin = AsyncAdmin(caller.name_servers, config=config)
        await self._server.start(self._host, self._port)
        await self._metrics.ask(self._admin)
        self._task = asyncio.get_running_loop().create_task(self._run(self._admin))

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._server.stop()
        if self._admin is not None:
            await self._admin.close()

    def addresses(self) -> dict[str, str]:
        return {"exporter": self._server.addr}

    def metrics_addresses(self) -> dict[str, str]:
        return {"exporter": self._server.addr}

    async def _run(self, admin: AsyncAdmin) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._metrics.ask(admin)


@click.command(epilog=example("rocketq exporter -n 127.0.0.1:9876 --port 5557"))
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=5557, show_default=True, help="Port; 0 picks a free one."
)
@click.option("--interval", type=click.FloatRange(1), default=15, show_default=True, help="Seconds between two rounds.")
@calls_cluster
def exporter(caller: Caller, host: str, port: int, interval: float) -> None:
    """Serve the metrics of rocketmq-exporter.

    Runs until Ctrl-C or SIGTERM. It works with any RocketMQ cluster, Apache's included, and sends a fixed number of
    requests per broker and round.
    """
    try:
        set_up_logs("info", None)
        serve(Exporter(caller, host, port, interval), None)
    except RocketQError as error:
        click.echo(f"rocketq exporter: {error}", err=True)
        sys.exit(1)
