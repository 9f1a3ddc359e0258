"""A replicated broker of real processes: etcd, a NameServer, three brokers that can be killed, stopped and started.

With `apart` each process has a network of its own, and ways between them can be cut.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketq.testing.embedded import SMALL_FILES
from rocketq.testing.etcd import LocalEtcd, free_ports

from .failover_history import MESSAGE_BYTES_MAX, SEGMENT_BYTES
from .namespaces import Namespaces

START_S = 60
NAME = "broker-a"
LOOPBACK = "127.0.0.1"
TTL_S = 4


class Process:
    """A `rocketq` command with its log."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.folder = folder
        self.name = name
        self.arguments = arguments
        self.before: list[str] = []
        self.environment: dict[str, str] = {}
        self.ready_file = folder / f"{name}.ready"
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        self.ready_file.unlink(missing_ok=True)
        command = [
            *self.before,
            str(Path(sys.executable).with_name("rocketq")),
            *self.arguments,
            "--ready-file",
            str(self.ready_file),
        ]
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                command,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONUNBUFFERED": "1"} | self.environment,
            )
        if wait:
            self.wait_ready()

    def wait_ready(self) -> dict[str, object]:
        deadline = time.monotonic() + START_S
        while not self.ready_file.exists():
            assert self.process is not None
            assert self.process.poll() is None, f"{self.name} ended: {self.tail}"
            assert time.monotonic() < deadline, f"{self.name} does not start: {self.tail}"
            time.sleep(0.05)
        return dict(json.loads(self.ready_file.read_text()))

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """As an operator does."""
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    @property
    def said(self) -> str:
        """Its whole log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def tail(self) -> str:
        return self.said[-3_000:]


class ReplicaProcesses:
    """Three replicas of one brokerName. Short leases, so that failovers take seconds."""

    def __init__(
        self,
        folder: Path,
        *,
        flush: str = "ASYNC_FLUSH",
        mode: str = "available",
        count: int = 3,
        etcd_members: int = 1,
        apart: bool = False,
        environments: Sequence[dict[str, str]] = (),
        **more: str,
    ) -> None:
        self.folder = folder
        self.etcd = LocalEtcd(folder / "etcd", members=etcd_members)
        self.etcd_names = [f"etcd{at}" for at in range(etcd_members)]
        broker_names = [f"broker{at}" for at in range(count)]
        self.network = Namespaces("namesrv", *self.etcd_names, *broker_names) if apart else None
        for name, member in zip(self.etcd_names, self.etcd.members, strict=True):
            member.host, member.before = self._addr(name), self._before(name)
        name_port, *self.ports = free_ports(count + 1)
        self.name_server = f"{self._addr('namesrv')}:{name_port}"
        self.names = self._process("namesrv", "namesrv", "--port", str(name_port))
        settings = {
            **SMALL_FILES,
            "brokerName": NAME,
            "haProtocol": "fenced",
            "haControlStore": self.etcd.url,
            "haLeaseTtl": str(1000 * TTL_S),
            "haLeaseTimeout": str(1000 * (TTL_S - 2)),
            "haLeaseMode": mode,
            "minInSyncReplicas": "2",
            "flushDiskType": flush,
            "haSlaveGoneTimeout": "1000",
            "mappedFileSizeCommitLog": str(SEGMENT_BYTES),
            "maxMessageSize": str(MESSAGE_BYTES_MAX),
            "defaultTopicQueueNums": "4",
            **more,
        }
        flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self.brokers = [
            self._process(name, "broker", "--port", str(port), *self._places(number), *flags)
            for number, (name, port) in enumerate(zip(broker_names, self.ports, strict=True))
        ]
        for broker, environment in zip(self.brokers, environments, strict=False):
            broker.environment = environment

    def _places(self, number: int) -> list[str]:
        return ["-n", self.name_server, "--data-dir", str(self.data_dir(number))]

    def data_dir(self, number: int) -> Path:
        return self.folder / f"data{number}"

    def _addr(self, name: str) -> str:
        return self.network.addr(name) if self.network else LOOPBACK

    def _before(self, name: str) -> list[str]:
        return self.network.command(name) if self.network else []

    def _process(self, name: str, *arguments: str) -> Process:
        open_to_all = ("--set", "allowAnonymous=true") if self.network is not None else ()
        process = Process(self.folder, name, *arguments, *open_to_all, "--host", self._addr(name))
        process.before = self._before(name)
        return process

    def others(self, broker: Process) -> list[Process]:
        return [each for each in self.brokers if each is not broker]

    def __enter__(self) -> Self:
        try:
            if self.network is not None:
                self.network.__enter__()
            self.etcd.start()
            self.names.start()
            for broker in self.brokers:
                broker.start(wait=False)
            for broker in self.brokers:
                broker.wait_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in [*self.brokers, self.names]:
            process.kill()
        self.etcd.stop()
        if self.network is not None:
            self.network.__exit__(kind, error, trace)

    def stop_brokers(self) -> None:
        for broker in self.brokers:
            broker.stop()

    @property
    def logs(self) -> str:
        return "\n".join(f"--- {broker.name}\n{broker.tail}" for broker in self.brokers)
