"""`rocketq` in a process of its own: started, stopped, killed and started again on the same ports and directory."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.command import Command
from rocketq.remoting import ConnectionPool

from . import processes
from .apache import BROKER_NAME, SMALL_FILES

START_SECONDS_MAX = 20
STOP_SECONDS_MAX = 15
SETTINGS = {
    **SMALL_FILES,
    "mappedFileSizeConsumeQueue": str(20 * 5_000),
    "maxMessageSize": str(1 << 20),
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "0.99",
    "diskSpaceCleanForciblyRatio": "0.98",
    "brokerName": BROKER_NAME,
    "traceTopicEnable": "true",
}


class OurCluster:
    """NameServer and broker; or with `start` any other command that serves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.addresses: dict[str, str] = {}
        self._ready = folder / "ready.json"
        self._process: subprocess.Popen[bytes] | None = None
        self._ports = ["--namesrv-port", "0", "--broker-port", "0"]

    @property
    def nameserver_addr(self) -> str:
        return self.addresses["namesrv"]

    @property
    def broker_addr(self) -> str:
        return self.addresses[BROKER_NAME]

    def up(self) -> None:
        self.start("up", "--data-dir", str(self.folder / "data"), *self._ports)
        names, broker = (addr.rpartition(":")[2] for addr in (self.nameserver_addr, self.broker_addr))
        self._ports = ["--namesrv-port", names, "--broker-port", broker]  # the same after a restart

    def start(self, *arguments: str) -> None:
        self._ready.unlink(missing_ok=True)
        changes = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "rocketq", *arguments, *changes, "--ready-file", str(self._ready)]
        with (self.folder / "ours.log").open("ab") as log:
            self._process = processes.start(command, log=log)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._ready.exists():
            assert self._process.poll() is None, self.log()
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        self.addresses |= json.loads(self._ready.read_text())["addresses"]

    def route(self, topic: str) -> TopicRoute | None:
        """As the NameServer tells it now."""
        return asyncio.run(self._route(topic))

    async def _route(self, topic: str) -> TopicRoute | None:
        pool = ConnectionPool()
        try:
            answer = await pool.invoke(self.nameserver_addr, Command(code=105, ext_fields={"topic": topic}))
            return TopicRoute.decode(answer.body) if answer.code == 0 else None
        finally:
            await pool.close()

    def log(self) -> str:
        return (self.folder / "ours.log").read_text()[-4000:]

    def stop(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.send_signal(signal.SIGTERM)
            try:
                assert process.wait(STOP_SECONDS_MAX) == 0, self.log()
            finally:
                process.kill()
                process.wait()

    def kill(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
