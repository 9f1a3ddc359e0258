"""Brokers of other protocols, for comparison only: NATS JetStream and Redis Streams, with files, on loopback."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import tempfile
import time
from abc import abstractmethod
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.interop.apache import free_port

from bench.load.peers import end

START_SECONDS_MAX = 20.0
FOLDERS = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ForeignUnavailable(Exception):
    """The server is not installed here."""


class Foreign:
    """A server in a folder that goes with it."""

    name: ClassVar[str]
    protocol: ClassVar[str]
    program: ClassVar[str]

    def __init__(self) -> None:
        found = shutil.which(self.program) or shutil.which(self.program, path=FOLDERS)
        if found is None:
            raise ForeignUnavailable(f"{self.program} is not installed")
        self._program = found
        self._root = Path(tempfile.mkdtemp(prefix=f"{self.protocol}-bench-"))
        self.ports = [free_port()]
        self.pids: list[int] = []
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _start(self) -> Self:
        with (self._root / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [self._program, *self._arguments()], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.program} did not start: {(self._root / 'log').read_text()[-1000:]}")
            time.sleep(0.02)
        self.pids = [self._process.pid]
        self._prepare()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            end(self._process)
        shutil.rmtree(self._root, ignore_errors=True)

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.ports[0])) == 0

    @abstractmethod
    def _arguments(self) -> list[str]: ...

    def _prepare(self) -> None:
        """What must be there before messages are sent."""


class Nats(Foreign):
    name, protocol, program = "NATS JetStream", "nats", "nats-server"

    def _arguments(self) -> list[str]:
        return ["-a", "127.0.0.1", "-p", str(self.ports[0]), "-js", "-sd", str(self._root / "store")]

    def _prepare(self) -> None:
        """One stream on files that takes every subject of the load."""
        asked = json.dumps({"name": "BENCH", "subjects": ["BenchTopic.*"], "storage": "file"}).encode()
        with socket.create_connection(("127.0.0.1", self.ports[0]), timeout=10) as link:
            link.sendall(b'CONNECT {"verbose":false}\r\nSUB _INBOX.make 1\r\n')
            link.sendall(b"PUB $JS.API.STREAM.CREATE.BENCH _INBOX.make %d\r\n%s\r\n" % (len(asked), asked))
            said = b""
            while b"stream_create_response" not in said and (more := link.recv(8192)):
                said += more
        if b'"error"' in said or b"stream_create_response" not in said:
            raise RuntimeError(f"no stream could be made: {said[-500:]!r}")


class Redis(Foreign):
    name, protocol, program = "Redis Streams", "redis", "redis-server"

    def _arguments(self) -> list[str]:
        given = ["--port", str(self.ports[0]), "--bind", "127.0.0.1", "--save", "", "--dir", str(self._root)]
        return [*given, "--appendonly", "yes", "--appendfsync", "everysec"]


FOREIGN: tuple[type[Foreign], ...] = (Nats, Redis)
