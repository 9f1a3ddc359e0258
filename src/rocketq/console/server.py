"""Serving the console over HTTP with uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from concurrent.futures import ThreadPoolExecutor

import uvicorn

from rocketq.console.app import make_app
from rocketq.console.config import ConsoleConfig
from rocketq.errors import ConfigError


class ConsoleServer:
    """Started and stopped as the other servers of the package."""

    def __init__(self, config: ConsoleConfig) -> None:
        self.config = config
        self._socket: socket.socket | None = None
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """ConfigError where the address cannot be used."""
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # `serve` announces the address
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(3, thread_name_prefix="rocketq-work"))
        config = self.config
        family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._socket.bind((config.host, config.port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"the console cannot listen at {config.host}:{config.port}: {error.strerror}") from None
        settings = uvicorn.Config(
            make_app(config),
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            ws="websockets-sansio",
            ws_max_size=16_384,
            limit_concurrency=1_024,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=32_768,
            ssl_certfile=str(config.cert) if config.cert else None,
            ssl_keyfile=str(config.key) if config.key else None,
            lifespan="on",
        )
        self._server = _Server(settings)
        self._task = asyncio.create_task(self._server.serve([self._socket]), name="rocketq-console")
        while not self._server.started:
            if self._task.done():
                await self._task
                raise ConfigError("the console did not start: see its log")
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._server is None or self._task is None:
            return
        self._server.should_exit = True
        try:
            async with asyncio.timeout(8):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def port(self) -> int:
        assert self._socket is not None
        return int(self._socket.getsockname()[1])

    @property
    def url(self) -> str:
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        return f"{self.config.scheme}://{host}:{self.port}{self.config.base_path}"

    def addresses(self) -> dict[str, str]:
        return {"console": self.url}


class _Server(uvicorn.Server):
    """Leaves signals to the process that runs the server."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]
        yield
