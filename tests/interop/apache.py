"""Apache NameServers and brokers as context managers: free ports, small files, bounded waits, clean stop or kill."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rocketq.broker.free_port import pick_port

from . import processes
from .release import Release

BROKER_NAME = "broker-a"
CLUSTER_NAME = "DefaultCluster"
START_SECONDS_MAX = 180.0
STOP_SECONDS_MAX = 60.0
POLL_SECONDS = 0.05

# Small, so that all of them roll. Index files are named by the millisecond: with fewer units Apache's recovery can fill
# two within one, and then overwrites the first with the second.
SMALL_FILES = {
    "mappedFileSizeCommitLog": str(2 << 20),
    "mappedFileSizeConsumeQueue": str(50 * 20),
    "maxHashSlotNum": "300",
    "maxIndexNum": "1500",
}

# 4.x refuses to start without these three; 5.x brings its own.
_LOGBACK_NAMES = ("logback_namesrv.xml", "logback_broker.xml", "logback_tools.xml")
_LOGBACK = """<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %p %m%n</pattern></encoder>
</appender>
<root level="WARN"><appender-ref ref="out"/></root>
</configuration>
"""


def free_port() -> int:
    """Below the range the kernel hands out to clients, and of no other row of tests."""
    return pick_port("127.0.0.1")


def free_broker_port() -> int:
    """A broker also opens its port - 2 (VIP channel) and + 1 (replication)."""
    return pick_port("127.0.0.1")


class JavaServer:
    """A JVM that says it is up, and ends when asked."""

    def __init__(self, release: Release, *, port: int, work: Path, heap_mb: int) -> None:
        self.release = release
        self.port = port
        self._work = work
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> Path:
        return self._work / f"{type(self).__name__}.log"

    def _start(self, main_class: str, settings: dict[str, str]) -> None:
        home = self._work / "home"
        (home / "conf").mkdir(parents=True, exist_ok=True)
        for name in _LOGBACK_NAMES:
            (home / "conf" / name).write_text(_LOGBACK, encoding="utf-8")
        conf = self._work / f"{type(self).__name__}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), encoding="utf-8")
        command = [*self.release.java(heap_mb=self._heap_mb, home=home), main_class, "-c", str(conf)]
        with self.log.open("wb") as out:
            self._process = processes.start(command, log=out, cwd=self._work, env={"ROCKETMQ_HOME": str(home)})
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise

    def _await_ready(self) -> None:
        process = self._running()
        deadline = time.monotonic() + START_SECONDS_MAX
        while not (self._said_boot_success() and self._accepts()):
            if process.poll() is not None:
                raise RuntimeError(f"{self} ended with {process.returncode} while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self} was not up after {START_SECONDS_MAX} s:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def _said_boot_success(self) -> bool:
        return b"boot success" in self.log.read_bytes()

    def _accepts(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self} is not running")
        return self._process

    def log_tail(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def stop(self) -> None:
        """Ask it to end, as an operator would; nothing happens when it has ended."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise TimeoutError(f"{self} did not stop within {STOP_SECONDS_MAX} s:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """End it at once, as a crash would."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()

    def __str__(self) -> str:
        return f"{type(self).__name__} {self.release.version} on port {self.port}"

    def __exit__(
        self, exception_type: type[BaseException] | None, exception: BaseException | None, trace: TracebackType | None
    ) -> None:
        if exception is None:
            self.stop()
        else:
            self.kill()


class ApacheNameServer(JavaServer):
    def __init__(self, release: Release, *, work: Path) -> None:
        super().__init__(release, port=free_port(), work=work, heap_mb=128)

    def __enter__(self) -> Self:
        self._start("org.apache.rocketmq.namesrv.NamesrvStartup", {"listenPort": str(self.port)})
        return self


class ApacheBroker(JavaServer):
    """A broker on a store directory. Message ids hold its port: restarts of one directory must use the same one."""

    def __init__(
        self,
        nameserver: ApacheNameServer,
        *,
        port: int,
        store: Path,
        work: Path,
        settings: dict[str, str] | None = None,
    ) -> None:
        super().__init__(nameserver.release, port=port, work=work, heap_mb=512)
        self.nameserver = nameserver
        self.store = store
        self._settings = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": BROKER_NAME,
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "namesrvAddr": nameserver.address,
            "listenPort": str(port),
            "haListenPort": str(port + 1),
            "storePathRootDir": str(store),
            "storePathCommitLog": str(store / "commitlog"),
            "autoCreateTopicEnable": "true",
            "flushDiskType": "ASYNC_FLUSH",
            "diskMaxUsedSpaceRatio": "95",
            **({} if self.release.is_4x else {"timerWheelEnable": "false"}),
            **SMALL_FILES,
            **(settings or {}),
        }

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True, exist_ok=True)
        self._start("org.apache.rocketmq.broker.BrokerStartup", self._settings)
        return self
