"""Running a server in the foreground: report when it serves, stop it cleanly on Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import json
import logging
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import click

from rocketq.errors import ConfigError
from rocketq.remoting import run

_M_MMAP_THRESHOLD = -3  # of mallopt
_LARGE_BLOCK_BYTES = 512 << 10

log = logging.getLogger(__name__)

_STDIN: Final = 0


class Servant(Protocol):
    """What can be served."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def addresses(self) -> dict[str, str]:
        """Names and addresses, once started."""
        ...


@runtime_checkable
class HasMetrics(Protocol):
    """A server with metrics and health pages."""

    def metrics_addresses(self) -> dict[str, str]:
        """Addresses of metrics and health pages by name, once started; without servers that have none."""
        ...


@runtime_checkable
class HasProcesses(Protocol):
    """A servant that is more than this process."""

    def pids(self) -> dict[str, int]:
        """By the names of its addresses, once started."""
        ...


def serve(servant: Servant, ready_file: Path | None, *, with_parent: bool = False) -> None:
    """Returns after the stop; what keeps the start from succeeding is raised. `with_parent`: the stop comes with the
    end of standard input too, so with that of the process at its other end, however it ended."""
    _return_large_blocks()
    run(_serve(servant, ready_file, with_parent))


def _return_large_blocks() -> None:
    """Have glibc return each large block to the system when it is freed.

    By default it keeps them in the heap once one was freed, where small blocks in between keep hundreds of MB resident
    after a few clients have sent large frames.
    """
    with contextlib.suppress(AttributeError, OSError):  # not glibc
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, _LARGE_BLOCK_BYTES)


async def _serve(servant: Servant, ready_file: Path | None, with_parent: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if with_parent:
        _stop_with_parent(loop, stop)
    if ready_file is not None:
        _clear(ready_file)
    await servant.start()
    gc.freeze()  # what a server is made of is not looked through for garbage while it serves
    try:
        addresses = servant.addresses()
        pids = servant.pids() if isinstance(servant, HasProcesses) else dict.fromkeys(addresses, os.getpid())
        metrics = servant.metrics_addresses() if isinstance(servant, HasMetrics) else {}
        _announce(addresses, pids, metrics, ready_file)
        notify_systemd("READY=1")
        await stop.wait()
    finally:
        notify_systemd("STOPPING=1")
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        await servant.stop()


def _stop_with_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """A thread waits, since not every standard input can be waited for by a loop. It dies with the process."""

    def wait() -> None:
        while os.read(_STDIN, 4096):
            pass  # nothing is expected there but the end
        log.warning("the process that started this one is gone: stopping")
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stop.set)

    threading.Thread(target=wait, name="rocketq-parent", daemon=True).start()


def _clear(ready_file: Path) -> None:
    """Remove the file of a killed process; report a path that cannot be written before the start."""
    try:
        ready_file.parent.mkdir(parents=True, exist_ok=True)
        ready_file.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigError(f"--ready-file {ready_file}: {error.strerror}") from None


def notify_systemd(state: str) -> None:
    """Report a state to the service manager that started this process, if there is one (`Type=notify` in a unit)."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as peer:
        peer.connect("\0" + path[1:] if path.startswith("@") else path)
        peer.sendall(state.encode())


def _announce(
    addresses: dict[str, str], pids: dict[str, int], metrics: dict[str, str], ready_file: Path | None
) -> None:
    """The file is renamed into place, so that a reader never sees half of it."""
    if ready_file is not None:
        scratch = ready_file.with_name(ready_file.name + ".tmp")
        scratch.write_text(json.dumps({"addresses": addresses, "pids": pids, "metrics": metrics}))
        scratch.replace(ready_file)
    click.echo("boot success: " + ", ".join(f"{name} {addr}" for name, addr in addresses.items()))
    if metrics:
        click.echo("metrics: " + ", ".join(f"{name} http://{addr}/metrics" for name, addr in metrics.items()))
