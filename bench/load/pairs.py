"""Masters with one slave: ours and Apache's, each with a NameServer of its own, on loopback."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.interop.apache import ApacheBroker, free_broker_port

from bench.load.peers import START_SECONDS_MAX, Apache, Ours, as_installed, end
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import ConnectionPool

NAME: Final = "bench"
SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}
CATCH_UP_SECONDS_MAX: Final = 120.0
ANSWER_MS_MAX: Final = 30_000  # of a broker that is busy copying


class OurSlave:
    """A slave of ours behind whoever is master at a NameServer, in a folder that goes with it."""

    def __init__(self, name_server: str, settings: Mapping[str, str], *, name: str = NAME) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="rocketq-slave-"))
        self._name_server = name_server
        self._settings = {**settings, **SLAVE, "brokerName": name}
        self.addr = ""
        self.pid = 0

    def __enter__(self) -> Self:
        ready = self._root / "ready.json"
        command = [sys.executable, "-m", "rocketq", "broker", "-n", self._name_server, "--port", "0"]
        command += ["--data-dir", str(self._root / "data"), "--ready-file", str(ready), "--log-level", "warning"]
        command += [word for key, value in self._settings.items() for word in ("--set", f"{key}={value}")]
        with (self._root / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=as_installed()
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                told = (self._root / "log").read_text()[-2000:]
                self.__exit__(None, None, None)
                raise RuntimeError(f"the slave did not start: {told}")
            time.sleep(0.005)
        (self.addr,) = json.loads(ready.read_text())["addresses"].values()
        self.pid = self._process.pid
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self._process)
        shutil.rmtree(self._root, ignore_errors=True)


class OurPair(Ours):
    """`rocketq up` as SYNC_MASTER, and a slave. Its CPU is the master's alone."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__({**settings, "brokerRole": "SYNC_MASTER", "brokerName": NAME})
        self.name = "rocketq + slave"
        self._slave_settings = settings

    def __enter__(self) -> Self:
        super().__enter__()
        self._slave = OurSlave(self.name_server, self._slave_settings).__enter__()
        await_level(f"127.0.0.1:{self.ports[0]}", self._slave.addr)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._slave.__exit__(kind, error, trace)
        super().__exit__(kind, error, trace)


class ApachePair(Apache):
    """The same of Apache's."""

    def __init__(self, version: str, settings: Mapping[str, str], *, heap_mb: int = 2048) -> None:
        super().__init__(version, {**settings, "brokerRole": "SYNC_MASTER"}, heap_mb=heap_mb)
        self.name = f"Apache {version} + slave"

    def __enter__(self) -> Self:
        super().__enter__()
        slave = ApacheBroker(
            self.nameserver,
            port=free_broker_port(),
            store=self._root / "slave-store",
            work=self._root / "slave",
            settings={**self.whole_files, **self._settings, **SLAVE},
        )
        slave._heap_mb = self._heap_mb
        self._stack.enter_context(slave)
        await_level(f"127.0.0.1:{self.ports[0]}", slave.address)
        return self


def log_end(addr: str) -> int:
    """What a broker itself says of its log; -1 while it says nothing."""

    async def ask() -> int:
        pool = ConnectionPool()
        try:
            answer = await pool.invoke(addr, Command(code=RequestCode.GET_BROKER_RUNTIME_INFO), ANSWER_MS_MAX)
            return int(KeyValues.decode(answer.body).table["commitLogMaxOffset"]) if answer.code == 0 else -1
        finally:
            await pool.close()

    return asyncio.run(ask())


def await_level(master: str, slave: str) -> None:
    deadline = time.monotonic() + CATCH_UP_SECONDS_MAX
    while not 0 <= log_end(slave) == log_end(master):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the slave at {slave} does not follow {master}")
        time.sleep(0.1)
