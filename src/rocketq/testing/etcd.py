"""A real etcd on this machine, of one or three members, for tests and for development."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from rocketq.broker.free_port import pick_port
from rocketq.errors import RocketQError

PACKAGE: Final = "etcd-server"
_READY_S: Final = 30.0
_STOP_S: Final = 10.0


class EtcdError(RocketQError):
    """etcd is not installed, or does not start."""


def find_etcd() -> str | None:
    """The program, when it is installed; ROCKETQ_ETCD names another one."""
    return shutil.which(os.environ.get("ROCKETQ_ETCD") or "etcd")


def free_ports(count: int) -> list[int]:
    """A range of ports below those of outgoing connections, with the adjacent ports that a broker uses."""
    return [pick_port("127.0.0.1") for _ in range(count)]


@dataclass
class EtcdMember:
    name: str
    folder: Path
    client_port: int
    peer_port: int
    extra: Sequence[str] = ()
    scheme: str = "http"
    host: str = "127.0.0.1"
    before: Sequence[str] = ()
    """Command prefix that runs a command in another network namespace."""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://{self.host}:{self.client_port}"

    @property
    def peer(self) -> str:
        return f"http://{self.host}:{self.peer_port}"

    def start(self, program: str, cluster: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        arguments = [
            f"--name={self.name}",
            f"--data-dir={self.folder / 'data'}",
            f"--listen-client-urls={self.endpoint}",
            f"--advertise-client-urls={self.endpoint}",
            f"--listen-peer-urls={self.peer}",
            f"--initial-advertise-peer-urls={self.peer}",
            f"--initial-cluster={cluster}",
            "--initial-cluster-state=new",
            "--log-level=error",
            *self.extra,
        ]
        self._end_orphan()
        with open(self.folder / "etcd.log", "ab") as output:  # Ctrl-C is not for it: another session
            self.process = subprocess.Popen(
                [*self.before, program, *arguments], stdout=output, stderr=output, start_new_session=True
            )
        self._pid_path.write_text(str(self.process.pid))

    @property
    def _pid_path(self) -> Path:
        return self.folder / "pid"

    def _end_orphan(self) -> None:
        """The process that started it was killed, and etcd still has the files open."""
        deadline = time.monotonic() + _STOP_S
        pid = self._pid_path.read_text().strip() if self._pid_path.exists() else ""
        while pid.isdecimal() and self._runs_as(int(pid)):
            if time.monotonic() > deadline:
                raise EtcdError(f"process {pid} has {self.folder} and does not end")
            try:
                os.kill(int(pid), signal.SIGKILL)
            except PermissionError:
                raise EtcdError(f"process {pid}, of another user, has {self.folder}") from None
            except ProcessLookupError:
                return
            time.sleep(0.05)

    def _runs_as(self, pid: int) -> bool:
        try:
            words = Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
        except OSError:
            return False
        return f"--data-dir={self.folder / 'data'}".encode() in words

    def signal(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
            self.process = None

    @property
    def log_tail(self) -> str:
        return (self.folder / "etcd.log").read_text(errors="replace")[-500:]


class LocalEtcd:
    """A cluster on loopback; its data is in `folder` and survives `stop`."""

    def __init__(self, folder: Path, members: int = 1, extra: Sequence[str] = (), scheme: str = "http") -> None:
        program = find_etcd()
        if program is None:
            raise EtcdError(f"the program etcd is not installed (Debian and Ubuntu: apt install {PACKAGE})")
        self._program = program
        self._folder = folder
        self._lock: int | None = None
        ports = free_ports(2 * members)
        self.members = [
            EtcdMember(f"m{at}", folder / f"m{at}", ports[2 * at], ports[2 * at + 1], extra, scheme)
            for at in range(members)
        ]

    @property
    def endpoints(self) -> tuple[str, ...]:
        return tuple(member.endpoint for member in self.members)

    @property
    def url(self) -> str:
        """As haControlStore has it."""
        return "etcd://" + ",".join(f"{member.host}:{member.client_port}" for member in self.members)

    def start(self, *, wait: bool = True) -> None:
        self._take_lock()
        for member in self.members:
            self.start_member(member)
        if wait:
            self.wait_ready()

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._free_lock()
            raise EtcdError(f"{self._folder} is open in another process") from None

    def _free_lock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def start_member(self, member: EtcdMember) -> None:
        member.start(self._program, ",".join(f"{each.name}={each.peer}" for each in self.members))

    def wait_ready(self) -> None:
        deadline = time.monotonic() + _READY_S
        for member in self.members:
            while not _is_healthy(member):
                if member.process is None or member.process.poll() is not None or time.monotonic() > deadline:
                    raise EtcdError(f"etcd does not start: {member.log_tail}")
                time.sleep(0.05)

    def stop(self) -> None:
        for member in self.members:
            if member.process is not None:
                member.signal(signal.SIGCONT)
                member.process.terminate()
        for member in self.members:
            if member.process is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    member.process.wait(_STOP_S)
                member.kill()
        self._free_lock()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _is_healthy(member: EtcdMember) -> bool:
    if member.scheme != "http":  # with TLS, the first call of the client shows it
        return _accepts(member.host, member.client_port)
    try:
        with urllib.request.urlopen(f"{member.endpoint}/health", timeout=1) as answer:
            return b"true" in answer.read()
    except (urllib.error.URLError, OSError):
        return False


def _accepts(host: str, port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((host, port), timeout=1):
        return True
    return False
