"""The web console beside `rocketq up`, in a process of its own: it takes nothing from the broker's event loop."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import logging
import os
import socket
import sys
from pathlib import Path
from typing import Final

import click

from rocketq.cli.serving import HasMetrics, HasProcesses, Servant

log = logging.getLogger(__name__)

PORT: Final = 9880
_LOOPBACK: Final = "127.0.0.1"
_START_S_MAX: Final = 60
_STOP_S_MAX: Final = 10
_POLL_S: Final = 0.05


def is_installed() -> bool:
    """Whether the extra `console` is."""
    return all(importlib.util.find_spec(name) is not None for name in ("fastapi", "uvicorn", "websockets"))


def free_or(port: int) -> int:
    """The port, or 0 (any) where another process listens at it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_LOOPBACK, port))
        except OSError:
            return 0
    return port


class WithConsole:
    """Starts a console once the servant serves, and prints its address as soon as it is ready.

    The servant does not wait for the console and outlives it.
    """

    def __init__(self, servant: Servant, data_dir: Path, *, port: int = PORT) -> None:
        self._servant = servant
        self._data_dir = data_dir
        self._port = port
        self._process: asyncio.subprocess.Process | None = None
        self._announcing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._servant.start()
        if not is_installed():
            log.info("no console: pip install 'rocketq[console]' adds it")
            return
        self._announcing = asyncio.create_task(self._run(self._servant.addresses()["namesrv"]))

    async def stop(self) -> None:
        if self._announcing is not None:
            self._announcing.cancel()
            await asyncio.gather(self._announcing, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            try:
                async with asyncio.timeout(_STOP_S_MAX):
                    await self._process.wait()
            except TimeoutError:
                self._process.kill()
                await self._process.wait()
        await self._servant.stop()

    def addresses(self) -> dict[str, str]:
        return self._servant.addresses()

    def metrics_addresses(self) -> dict[str, str]:
        return self._servant.metrics_addresses() if isinstance(self._servant, HasMetrics) else {}

    def pids(self) -> dict[str, int]:
        if isinstance(self._servant, HasProcesses):
            return self._servant.pids()
        return dict.fromkeys(self.addresses(), os.getpid())

    async def _run(self, name_server: str) -> None:
        data = self._data_dir / "console"
        data.mkdir(parents=True, exist_ok=True)
        ready_file = data / "ready.json"
        ready_file.unlink(missing_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rocketq", "console", "-n", name_server.replace("0.0.0.0", _LOOPBACK)),
            *("--port", str(free_or(self._port)), "--data", str(data), "--ready-file", str(ready_file)),
            *("--log-file", str(data / "console.log"), "--with-parent"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(_START_S_MAX):
                while not ready_file.exists():
                    if self._process.returncode is not None:
                        log.warning("the console did not start: see %s", data / "console.log")
                        return
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            log.warning("the console did not start within %d s", _START_S_MAX)
            return
        click.echo(f"console: {json.loads(ready_file.read_text())['addresses']['console']}")
