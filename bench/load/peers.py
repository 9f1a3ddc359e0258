"""The brokers that are compared: ours and Apache's, each with a NameServer of its own, on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self

from tests.interop.apache import ApacheBroker, ApacheNameServer, JavaServer, free_broker_port
from tests.interop.release import Release, obtain

from bench.load.generator import Load, Measured, run
from rocketq.broker.config import describe_unknown, unknown_keys
from rocketq.client import AsyncAdmin, Credentials
from rocketq.client.session import SessionConfig
from rocketq.errors import RocketQError

START_SECONDS_MAX = 30.0
TOPICS_AT_ONCE = 20
WHOLE_FILES = {
    "mappedFileSizeCommitLog": str(1 << 30),
    "mappedFileSizeConsumeQueue": "6000000",
    "maxHashSlotNum": "5000000",
    "maxIndexNum": "20000000",
}
"""As operators run them, for everybody."""
CREDENTIALS = Credentials("bench-user", "bench-secret")
PLAIN_ACL = f"""accounts:
- accessKey: {CREDENTIALS.access_key}
  secretKey: {CREDENTIALS.secret_key}
  admin: true
"""
"""An admin without lists of topics and groups is allowed everything."""
NO_LIMIT = "topic/*: 100000000 msg/s, 100000000000 B/s"
"""Quotas that are checked with every request and never exceeded."""
VARIANTS = ("plain", "guard", "quotas", "signed")
"""Of our broker: as it is, with a guard that lets everything pass, with quotas, with requests that must be signed."""


class Peer(Protocol):
    """A running broker, or several of one cluster. `started` is when its process was made, by time.monotonic(), and
    the port it will listen at. Requests are signed with `credentials` where there are some."""

    name: str
    name_server: str
    credentials: Credentials | None
    started: tuple[float, int] | None

    @property
    def ports(self) -> list[int]: ...
    @property
    def pids(self) -> list[int]: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def as_installed() -> dict[str, str]:
    """The environment in which Python keeps what it compiles, as an installation has it."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def end(process: subprocess.Popen[bytes], patience_s: float = 30) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class Ours:
    """`rocketq up`, or a variant of it, in a folder that goes with it."""

    def __init__(self, settings: Mapping[str, str], *, brokers: int = 1, variant: str = "plain") -> None:
        self.name = "rocketq" if variant == "plain" else f"rocketq {variant}"
        self.credentials = CREDENTIALS if variant == "signed" else None
        self._variant = variant
        self._settings = {**WHOLE_FILES, **settings, **({"quotas": NO_LIMIT} if variant == "quotas" else {})}
        if unknown := unknown_keys(self._settings):  # the broker ignores them, and the wrong thing would be measured
            raise ValueError(f"unknown settings: {describe_unknown(unknown)}")
        self._brokers = brokers
        self._root = Path(tempfile.mkdtemp(prefix="rocketq-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.name_server = ""
        self.started: tuple[float, int] | None = None
        self.ports: list[int] = []
        self.pids: list[int] = []

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:  # also when the run is ended meanwhile: nothing may stay behind
            self.__exit__(None, None, None)
            raise

    def _start(self) -> Self:
        ready, port = self._root / "ready.json", free_broker_port()
        command = [sys.executable, "-m", *self._program(), "--data-dir", str(self._root / "data")]
        command += ["--broker-port", str(port), "--ready-file", str(ready)]
        if self._brokers > 1:
            command += ["--brokers", str(self._brokers)]
        command += [word for key, value in self._settings.items() for word in ("--set", f"{key}={value}")]
        with (self._root / "log").open("wb") as log:
            self.started = (time.monotonic(), port)
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=as_installed()
            )
        deadline = time.monotonic() + START_SECONDS_MAX
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not start: {(self._root / 'log').read_text()[-2000:]}")
            time.sleep(0.005)
        said = json.loads(ready.read_text())
        self.name_server = said["addresses"].pop("namesrv")
        self.ports = [int(addr.rsplit(":", 1)[1]) for addr in said["addresses"].values()]
        self.pids = sorted({said["pids"][name] for name in said["addresses"]})
        return self

    def _program(self) -> list[str]:
        """What is run; both programs know the other options."""
        if self._variant == "guard":
            return ["bench.load.variant_broker", "--guard"]
        if self._variant == "signed":
            return ["bench.load.variant_broker", "--credentials", CREDENTIALS.access_key, CREDENTIALS.secret_key]
        return ["rocketq", "up", "--namesrv-port", "0", "--log-level", "warning"]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            end(self._process)
        shutil.rmtree(self._root, ignore_errors=True)


class _SpeedyRelease(Release):
    """With the JVM's own defaults: the interop tests start it for a quick start instead."""

    def java(self, *, heap_mb: int, home: Path) -> list[str]:
        slow = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        return [word for word in Release.java(self, heap_mb=heap_mb, home=home) if word not in slow]


class Apache:
    """A NameServer and a broker of one release, with whole-size files as operators run them."""

    whole_files: ClassVar = WHOLE_FILES

    def __init__(self, version: str, settings: Mapping[str, str], *, heap_mb: int = 4096, acl: bool = False) -> None:
        """`acl`: with the access control of 4.x, and one account."""
        release = obtain(version)
        self.name = f"Apache {version} ACL" if acl else f"Apache {version}"
        self.credentials = CREDENTIALS if acl else None
        self._release = _SpeedyRelease(release.version, release.jars, release.driver)
        self._settings = {**settings, **({"aclEnable": "true"} if acl else {})}
        self._heap_mb = heap_mb
        self._root = Path(tempfile.mkdtemp(prefix="apache-bench-"))
        self._stack = ExitStack()
        self.name_server = ""
        self.started: tuple[float, int] | None = None
        self.ports: list[int] = []
        self.pids: list[int] = []

    def __enter__(self) -> Self:
        try:
            return self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def _start(self) -> Self:
        if self.credentials is not None:
            conf = self._root / "broker" / "home" / "conf"
            conf.mkdir(parents=True)
            (conf / "plain_acl.yml").write_text(PLAIN_ACL)
        self.nameserver = name_server = self._stack.enter_context(ApacheNameServer(self._release, work=self._root))
        broker = ApacheBroker(
            name_server,
            port=free_broker_port(),
            store=self._root / "store",
            work=self._root / "broker",
            settings={**self.whole_files, **self._settings},
        )
        broker._heap_mb = self._heap_mb
        self.started = (time.monotonic(), broker.port)
        self._stack.enter_context(broker)
        self.name_server, self.ports = name_server.address, [broker.port]
        self.pids = [_pid_of(broker)]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
        shutil.rmtree(self._root, ignore_errors=True)


def _pid_of(server: JavaServer) -> int:
    return server._running().pid


def make_topics(peer: Peer, names: list[str], queues: int) -> None:
    """Through the admin API, the same for every peer."""

    async def create() -> None:
        patient = SessionConfig(control_timeout_ms=int(START_SECONDS_MAX * 1000), credentials=peer.credentials)
        async with AsyncAdmin(peer.name_server, config=patient) as admin:
            for at in range(0, len(names), TOPICS_AT_ONCE):
                some = names[at : at + TOPICS_AT_ONCE]
                await asyncio.gather(*(admin.topics.create(name, queues=queues) for name in some))

    deadline = time.monotonic() + START_SECONDS_MAX
    while True:  # a broker is in the NameServer's tables a moment after it started
        try:
            return asyncio.run(create())
        except RocketQError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def measure(peer: Peer, load: Load) -> Measured:
    """One run, signed where the peer asks for it."""
    if peer.credentials is not None:
        load = replace(load, access_key=peer.credentials.access_key, secret_key=peer.credentials.secret_key)
    return run(load, ports=peer.ports, pids=peer.pids)
