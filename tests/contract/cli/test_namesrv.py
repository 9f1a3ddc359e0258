"""`rocketq namesrv` as a process."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketq.protocol.command import Command
from rocketq.remoting import ClientTls, ConnectionPool

START_SECONDS_MAX = 20


class Process:
    def __init__(self, folder: Path, *arguments: str) -> None:
        (folder / "namesrv.conf").write_text(f"kvConfigPath={folder}/kv/kvConfig.json\nnobodyKnows=1\nlistenPort=1\n")
        self.ready = folder / "ready.json"
        self.log = folder / "logs" / "namesrv.log"
        options = ["-c", str(folder / "namesrv.conf"), "--ready-file", str(self.ready), "--log-file", str(self.log)]
        self.child = subprocess.Popen(
            [sys.executable, "-m", "rocketq", "namesrv", *options, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def addr(self) -> str:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self.ready.exists():
            assert self.child.poll() is None, self.child.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.02)
        note = json.loads(self.ready.read_text())
        assert note["pids"] == {"namesrv": self.child.pid}
        return str(note["addresses"]["namesrv"])

    def stop(self, number: int) -> tuple[str, str]:
        self.child.send_signal(number)
        output = self.child.communicate(timeout=10)
        assert self.child.returncode == 0
        return output


@pytest.fixture
def processes() -> Iterator[list[Process]]:
    started: list[Process] = []
    yield started
    for process in started:
        if process.child.poll() is None:
            process.child.kill()
        process.child.communicate()


async def ask(addr: str, command: Command, tls: ClientTls | None = None) -> Command:
    pool = ConnectionPool(tls=tls)
    try:
        return await pool.invoke(addr, command)
    finally:
        await pool.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_when_it_serves_and_stops_cleanly(tmp_path: Path, processes: list[Process], number: int) -> None:
    process = Process(tmp_path, "--port", "0")
    processes.append(process)
    addr = process.addr()
    assert addr.startswith("127.0.0.1:")
    put = Command(code=100, ext_fields={"namespace": "N", "key": "k", "value": "v"})
    assert asyncio.run(ask(addr, put)).code == 0
    assert asyncio.run(ask(addr, Command(code=318, body=b"orderMessageEnable=true"))).code == 0
    shown = asyncio.run(ask(addr, Command(code=319))).body.decode()
    assert f"listenPort={addr.rpartition(':')[2]}\n" in shown, "where it listens, not 0"
    out, err = process.stop(number)
    assert out == f"boot success: namesrv {addr}\n"
    assert err == ""
    assert not process.ready.exists()
    assert "nobodyKnows" in process.log.read_text()
    assert json.loads((tmp_path / "kv" / "kvConfig.json").read_text()) == {"configTable": {"N": {"k": "v"}}}
    assert "orderMessageEnable=true" in (tmp_path / "namesrv.conf").read_text()


def test_it_serves_over_tls_too(tmp_path: Path, processes: list[Process]) -> None:
    process = Process(tmp_path, "--port", "0")
    processes.append(process)
    assert asyncio.run(ask(process.addr(), Command(code=206), ClientTls())).code == 0
    process.stop(signal.SIGTERM)


def test_a_port_in_use_is_said_so(tmp_path: Path, processes: list[Process]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = Process(tmp_path, "--port", str(taken.getsockname()[1]))
        processes.append(process)
        _, err = process.child.communicate(timeout=START_SECONDS_MAX)
    assert process.child.returncode == 1
    assert "cannot listen" in err


def test_a_bad_setting_is_wrong_usage(tmp_path: Path, processes: list[Process]) -> None:
    process = Process(tmp_path, "-c", str(tmp_path / "missing.conf"))
    processes.append(process)
    _, err = process.child.communicate(timeout=START_SECONDS_MAX)
    assert process.child.returncode == 2
    assert "missing.conf" in err


def test_a_log_file_that_cannot_be_is_wrong_usage(tmp_path: Path, processes: list[Process]) -> None:
    """Goal: folders on the way to it are made (as above); where that cannot be, one line says so."""
    (tmp_path / "taken").write_text("a file, no folder")
    process = Process(tmp_path, "--port", "0", "--log-file", str(tmp_path / "taken" / "namesrv.log"))
    processes.append(process)
    _, err = process.child.communicate(timeout=START_SECONDS_MAX)
    assert process.child.returncode == 2
    assert err.startswith("rocketq namesrv: --log-file")
