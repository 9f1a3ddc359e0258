"""Running a server in the foreground: say when it serves, stop it cleanly on Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Protocol, runtime_checkable

import click

from rocketq.remoting import run


class Servant(Protocol):
    """What can be served."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    def addresses(self) -> dict[str, str]:
        """Names and addresses, once started."""
        ...


@runtime_checkable
class HasProcesses(Protocol):
    """A servant that is more than this process."""

    def pids(self) -> dict[str, int]:
        """By the names of its addresses, once started."""
        ...


def serve(servant: Servant, ready_file: Path | None) -> None:
    """Returns after the stop; what keeps the start from succeeding is raised."""
    run(_serve(servant, ready_file))


async def _serve(servant: Servant, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await servant.start()
    try:
        addresses = servant.addresses()
        pids = servant.pids() if isinstance(servant, HasProcesses) else dict.fromkeys(addresses, os.getpid())
        _announce(addresses, pids, ready_file)
        await stop.wait()
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)
        await servant.stop()


def _announce(addresses: dict[str, str], pids: dict[str, int], ready_file: Path | None) -> None:
    """The file appears whole, so that whoever waits for it reads all of it."""
    if ready_file is not None:
        ready_file.parent.mkdir(parents=True, exist_ok=True)
        scratch = ready_file.with_name(ready_file.name + ".tmp")
        scratch.write_text(json.dumps({"addresses": addresses, "pids": pids}))
        scratch.replace(ready_file)
    click.echo("boot success: " + ", ".join(f"{name} {addr}" for name, addr in addresses.items()))
