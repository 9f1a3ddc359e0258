"""A replicated broker of real processes: etcd, a NameServer, three brokers that can be killed, stopped and started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketq.testing.etcd import LocalEtcd, free_ports

START_S = 60
NAME = "broker-a"


class Process:
    """A `rocketq` command with its log."""

    def __init__(self, folder: Path, name: str, *arguments: str) -> None:
        self.folder = folder
        self.name = name
        self.arguments = arguments
        self.ready_file = folder / f"{name}.ready"
        self.log = folder / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True) -> None:
        self.ready_file.unlink(missing_ok=True)
        command = [
            str(Path(sys.executable).with_name("rocketq")),
            *self.arguments,
            "--ready-file",
            str(self.ready_file),
        ]
        with open(self.log, "ab") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, env=os.environ | {"PYTHONUNBUFFERED": "1"}
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
    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3_000:] if self.log.exists() else ""


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
        **more: str,
    ) -> None:
        self.folder = folder
        self.etcd = LocalEtcd(folder / "etcd", members=etcd_members)
        self.name_port, *self.ports = free_ports(count + 1)
        self.name_server = f"127.0.0.1:{self.name_port}"
        self.names = Process(folder, "namesrv", "namesrv", "--port", str(self.name_port))
        self.brokers: list[Process] = []
        for number, port in enumerate(self.ports):
            settings = {
                "brokerName": NAME,
                "haProtocol": "fenced",
                "haControlStore": self.etcd.url,
                "haLeaseTtl": "4000",
                "haLeaseTimeout": "2000",
                "haLeaseMode": mode,
                "minInSyncReplicas": "2",
                "flushDiskType": flush,
                "haSlaveGoneTimeout": "1000",
                "mappedFileSizeCommitLog": str(8 << 20),
                "maxMessageSize": str(1 << 20),
                "defaultTopicQueueNums": "4",
                **more,
            }
            flags = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
            arguments = [
                "--port",
                str(port),
                "-n",
                self.name_server,
                "--data-dir",
                str(folder / f"data{number}"),
                *flags,
            ]
            self.brokers.append(Process(folder, f"broker{number}", "broker", *arguments))

    def __enter__(self) -> Self:
        try:
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

    @property
    def logs(self) -> str:
        return "\n".join(f"--- {broker.name}\n{broker.tail}" for broker in self.brokers)
