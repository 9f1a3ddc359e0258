"""The HTTP endpoint of a server: /metrics, /livez, /readyz and /startupz on one port."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import resource
import time
import zlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final

from rocketq.remoting.http_server import HttpRequest, HttpResponse, HttpServer
from rocketq.remoting.loop_watch import LoopWatch
from rocketq.runtime.health import HealthChecks, HealthReport
from rocketq.runtime.metrics import OPENMETRICS_TYPE, TEXT_TYPE, Registry, Snapshot, counter, gauge
from rocketq.runtime.slices import finish

log = logging.getLogger(__name__)

PAGE_LIFE_S: Final = 1.0
"""Scrapes within this time get the same bytes."""
_PIECE_CHARS: Final = 32 << 10
_JSON: Final = "application/json"
_GZIP_LEVEL: Final = 1
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS
_PROC: Final = Path("/proc/self")

PROCESS_CPU: Final = counter("process_cpu_seconds_total", "User and system CPU seconds of this process.")
PROCESS_MEMORY: Final = gauge("process_resident_memory_bytes", "Resident memory of this process.")
PROCESS_FDS: Final = gauge("process_open_fds", "Open file descriptors of this process.")
PROCESS_FDS_MAX: Final = gauge("process_max_fds", "Largest number of file descriptors this process may open.")
PROCESS_START: Final = gauge("process_start_time_seconds", "Start of this process, seconds since 1970.")
PROCESS_FAMILIES: Final = (PROCESS_CPU, PROCESS_MEMORY, PROCESS_FDS, PROCESS_FDS_MAX, PROCESS_START)


def collect_process(snapshot: Snapshot) -> Iterator[None]:
    """CPU, memory and descriptors of this process; what the system does not tell is left out."""
    snapshot.add(PROCESS_CPU, (), time.process_time())
    snapshot.add(PROCESS_FDS_MAX, (), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        stat = (_PROC / "stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
        boot_s = next(
            int(line.split()[1])
            for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()
            if line.startswith("btime")
        )
        snapshot.add(PROCESS_MEMORY, (), int(stat[21]) * resource.getpagesize())
        snapshot.add(PROCESS_START, (), boot_s + int(stat[19]) / os.sysconf("SC_CLK_TCK"))
        snapshot.add(PROCESS_FDS, (), len(os.listdir(_PROC / "fd")))
    except (OSError, ValueError, IndexError, StopIteration):
        pass  # not Linux
    yield


class MetricsPage:
    """Renders the registry in slices of the event loop, once at a time and at most once per `PAGE_LIFE_S`."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._locks = {True: asyncio.Lock(), False: asyncio.Lock()}
        self._pages: dict[tuple[bool, bool], tuple[float, list[bytes]]] = {}

    async def __call__(self, request: HttpRequest) -> HttpResponse:
        openmetrics = _prefers_openmetrics(request.headers.get("accept", ""))
        gzip = "gzip" in _accepted(request.headers.get("accept-encoding", ""))
        async with self._locks[openmetrics]:
            body = await self._page(openmetrics, gzip)
        headers = {"Vary": "Accept, Accept-Encoding"} | ({"Content-Encoding": "gzip"} if gzip else {})
        return HttpResponse(200, body, OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, headers)

    async def _page(self, openmetrics: bool, gzip: bool) -> list[bytes]:
        now_s = time.monotonic()
        rendered_s, plain = self._pages.get((openmetrics, False), (-PAGE_LIFE_S, []))
        if now_s - rendered_s >= PAGE_LIFE_S:
            plain, rendered_s = await finish(_encoded(self._registry, openmetrics)), time.monotonic()
            self._pages[openmetrics, False] = rendered_s, plain
            self._pages.pop((openmetrics, True), None)
        if not gzip:
            return plain
        if (openmetrics, True) not in self._pages:
            self._pages[openmetrics, True] = rendered_s, await finish(_compressed(plain))
        return self._pages[openmetrics, True][1]


def _encoded(registry: Registry, openmetrics: bool) -> Generator[None, None, list[bytes]]:
    body: list[bytes] = []
    pieces: list[str] = []
    chars = 0
    for piece in registry.exposition(openmetrics=openmetrics):
        if piece:
            pieces.append(piece)
            chars += len(piece)
        if chars >= _PIECE_CHARS:
            body.append("".join(pieces).encode())
            pieces, chars = [], 0
        yield
    body.append("".join(pieces).encode())
    return body


def _compressed(body: list[bytes]) -> Generator[None, None, list[bytes]]:
    compressor = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    found = []
    for piece in body:
        found.append(compressor.compress(piece))
        yield
    return [piece for piece in (*found, compressor.flush()) if piece]


def _accepted(header: str) -> dict[str, float]:
    """Media types or codings of an Accept header with their weights; those that are not wanted are left out."""
    found: dict[str, float] = {}
    for item in header.split(","):
        name, *parameters = (part.strip().lower() for part in item.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        if name and weight > 0:
            found[name] = max(weight, found.get(name, 0.0))
    return found


def _prefers_openmetrics(accept: str) -> bool:
    """Whoever asks for neither form gets text 0.0.4."""
    accepted = _accepted(accept)
    return accepted.get("application/openmetrics-text", 0.0) > accepted.get("text/plain", 0.0)


class ObservabilityServer:
    """Metrics and health pages, and the watch of the event loop. `health` may be asked while the server starts."""

    def __init__(self, registry: Registry, health: HealthChecks) -> None:
        self.registry = registry
        self._health = health
        self._watch = LoopWatch()
        registry.add(collect_process, self._watch.collect)
        self._http = HttpServer(
            {
                "/": self._index,
                "/metrics": MetricsPage(registry),
                "/livez": self._livez,
                "/readyz": self._readyz,
                "/startupz": self._startupz,
            }
        )

    @property
    def addr(self) -> str:
        return self._http.addr

    @property
    def port(self) -> int:
        return self._http.port

    async def start(self, host: str, port: int) -> None:
        """UnreachableError when it cannot listen there; port 0 picks a free one."""
        await self._http.start(host, port)
        assert self._http.listening is not None
        self._watch.start([self._http.listening])
        log.info("metrics and health pages serve at http://%s", self.addr)

    async def stop(self) -> None:
        self._watch.stop()
        await self._http.stop()

    async def _index(self, _: HttpRequest) -> HttpResponse:
        return HttpResponse.text(200, "RocketQ: /metrics /livez /readyz /startupz (?verbose)\n")

    async def _livez(self, request: HttpRequest) -> HttpResponse:
        return _health_page(HealthReport({"loop": None}), request)  # while the loop is stuck the watch answers

    async def _readyz(self, request: HttpRequest) -> HttpResponse:
        return _health_page(self._health.readiness(), request)

    async def _startupz(self, request: HttpRequest) -> HttpResponse:
        return _health_page(self._health.startup(), request)


def _health_page(report: HealthReport, request: HttpRequest) -> HttpResponse:
    status = 200 if report.ok else 503
    if _JSON in _accepted(request.headers.get("accept", "")):
        return HttpResponse(status, (json.dumps(report.to_json()).encode(),), _JSON)
    return HttpResponse.text(status, report.text(verbose="verbose" in request.query))
