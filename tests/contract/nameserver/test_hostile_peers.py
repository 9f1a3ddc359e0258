"""A short run of fuzz/servers.py: the server lives, gives memory back, and no request blocks its event loop."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rocketq.nameserver import NameServer, NameServerConfig

FUZZ = Path(__file__).parents[3] / "fuzz" / "servers.py"
SECONDS = 3.0


@pytest.fixture(scope="module")
def fuzz() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fuzz_servers", FUZZ)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["fuzz_servers"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("target", ["namesrv", "broker"])
def test_a_server_outlives_its_attackers_and_gives_memory_back(fuzz: ModuleType, tmp_path: Path, target: str) -> None:
    """Goal: with a probe that is answered all the time. Its bound is the tool's where the machine is idle."""
    with fuzz.running(target, tmp_path) as (addr, pid):
        report = fuzz.attack(addr, pid, target, SECONDS, 1)
    assert report.frames > 100
    assert report.probes > 10
    assert report.growth_bytes <= fuzz.GROWTH_BYTES_MAX
    assert report.probe_max_ms < 5_000


def test_no_request_holds_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the CPU time of one callback stays short, whatever arrives. Wall time depends on the load."""
    times_ms: list[float] = []
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> Any:
        start_s = time.thread_time()
        try:
            return run(handle)  # type: ignore[no-untyped-call]
        finally:
            times_ms.append((time.thread_time() - start_s) * 1000)

    async def main() -> None:
        server = NameServer(
            NameServerConfig(port=0, kv_path=tmp_path / "kv.json", config_path=tmp_path / "namesrv.properties")
        )
        await server.start()
        options = ["--peers", server.addr, "--seconds", str(SECONDS)]
        peers = await asyncio.create_subprocess_exec(sys.executable, str(FUZZ), *options, stdout=subprocess.DEVNULL)
        assert await peers.wait() == 0
        await server.stop()

    monkeypatch.setattr(asyncio.Handle, "_run", timed)
    gc.collect()
    gc.freeze()  # what the tests before this one left does not count in a collection
    try:
        asyncio.run(main())
    finally:
        gc.unfreeze()
    times_ms.sort()
    assert len(times_ms) > 1_000
    assert times_ms[int(len(times_ms) * 0.999)] < 10
    assert times_ms[-1] < 250  # a full garbage collection, or the copy of a frame of 16 MiB
