"""The HTTP endpoint over loopback: scrapes, health, bad requests, slow readers, and a loop that is stuck."""

from __future__ import annotations

import asyncio
import functools
import gzip
import http.client
import inspect
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from rocketq.errors import UnreachableError
from rocketq.remoting import http_server, loop_watch
from rocketq.remoting.observability import ObservabilityServer
from rocketq.runtime.health import HealthChecks
from rocketq.runtime.metrics import Counters, Registry, Snapshot, counter
from tests.contract.remoting.conftest import Run

P = ParamSpec("P")


def on_both_loops(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test's coroutine on asyncio's loop and on uvloop's."""
    signature = inspect.signature(test)

    def runs(run: Run, **given: Any) -> None:
        run(test(**given))  # type: ignore[call-arg]

    parameter = inspect.Parameter("run", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    functools.update_wrapper(runs, test)
    runs.__signature__ = signature.replace(parameters=[parameter, *signature.parameters.values()])  # type: ignore[attr-defined]
    del runs.__wrapped__  # type: ignore[attr-defined]
    return runs


SENT = counter("sent_total", "Messages sent.", "topic")


@asynccontextmanager
async def serving(series: int = 10, health: HealthChecks | None = None) -> AsyncIterator[ObservabilityServer]:
    registry = Registry({"cluster": "C"}, series_max=200_000)
    sent = Counters(SENT)
    for number in range(series):
        sent.add((f"topic-{number}",), number)
    registry.add(sent.collect)
    server = ObservabilityServer(registry, health or HealthChecks())
    await server.start("127.0.0.1", 0)
    try:
        yield server
    finally:
        await server.stop()


def get(server: ObservabilityServer, path: str, **headers: str) -> tuple[int, str, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


async def fetch(server: ObservabilityServer, path: str, **headers: str) -> tuple[int, str, bytes]:
    return await asyncio.to_thread(get, server, path, **headers)


async def exchange(server: ObservabilityServer, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer


@on_both_loops
async def test_a_scrape_in_each_form() -> None:
    prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
    async with serving() as server:
        status, kind, body = await fetch(server, "/metrics")
        assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
        families = {family.name: family for family in parse_text(body.decode())}
        assert len(families["sent"].samples) == 10
        assert {"process_cpu_seconds", "process_open_fds", "rocketq_event_loop_delay_seconds"} <= families.keys()
        status, kind, body = await fetch(server, "/metrics", Accept=prometheus)
        assert kind == "application/openmetrics-text; version=1.0.0; charset=utf-8"
        assert len({family.name: family for family in parse_openmetrics(body.decode())}["sent"].samples) == 10
        status, kind, body = await fetch(server, "/metrics", Accept_Encoding="gzip", Accept="image/png;q=x")
        assert kind.startswith("text/plain")
        assert gzip.decompress(body).startswith(b"# HELP process_cpu_seconds_total")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", b"413 "),
        (b"PUT /metrics HTTP/1.0\r\n\r\n", b"405 Method Not Allowed"),
        (b"hello\r\n\r\n", b"400 Bad Request"),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", b"400 Bad Request"),
        (b"GET http://[ HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000 + b"\r\n\r\n", b"431 "),
        (b"\x00\xff" * 8 + b"\r\n\r\n", b"400 Bad Request"),
    ],
)
@on_both_loops
async def test_bad_requests_get_a_status_and_the_server_survives(request_: bytes, status: bytes) -> None:
    async with serving() as server:
        assert (await exchange(server, request_)).startswith(b"HTTP/1.1 " + status)
        assert (await fetch(server, "/livez"))[0] == 200


@on_both_loops
async def test_a_connection_serves_several_requests() -> None:
    async with serving() as server:
        answer = await exchange(
            server, b"HEAD /metrics HTTP/1.1\r\n\r\nGET /livez HTTP/1.1\r\nConnection: close\r\n\r\n"
        )
        assert answer.count(b"HTTP/1.1 200 OK") == 2
        assert answer.endswith(b"\r\n\r\nok\n")
        assert b"sent_total" not in answer


@on_both_loops
async def test_many_scrapers_share_one_rendering_and_the_loop_stays_free() -> None:
    """Goal: ten scrapers of 100,000 series hold the loop no longer than a slice, and all get the same."""
    async with serving(100_000) as server:
        held_s, done = [0.0], asyncio.Event()

        async def measure() -> None:
            before_s = time.thread_time()
            while not done.is_set():
                await asyncio.sleep(0)
                now_s = time.thread_time()
                held_s[0], before_s = max(held_s[0], now_s - before_s), now_s

        measuring = asyncio.create_task(measure())
        bodies = await asyncio.gather(*(fetch(server, "/metrics") for _ in range(10)))
        done.set()
        await measuring
        assert {len(body) for _, _, body in bodies} == {len(bodies[0][2])}
        assert bodies[0][2].count(b"\nsent_total{") == 100_000
        assert held_s[0] < 0.05  # CPU of one turn: 0.5 ms on an idle machine


@on_both_loops
async def test_a_reader_that_stops_reading_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_UNREAD_S_MAX", 0.2)
    async with serving(100_000) as server:
        slow = socket.create_connection(("127.0.0.1", server.port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        async with asyncio.timeout(20):
            while not server._http._tasks:
                await asyncio.sleep(0.01)
            while server._http._tasks:
                await asyncio.sleep(0.01)
        assert (await fetch(server, "/livez"))[0] == 200
        slow.close()


@on_both_loops
async def test_connections_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_CONNECTIONS_MAX", 2)
    async with serving() as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(2)]
        async with asyncio.timeout(10):
            while len(server._http._tasks) < 2:
                await asyncio.sleep(0.01)
        assert (await fetch(server, "/livez"))[0] == 503
        for one in idle:
            one.close()
        async with asyncio.timeout(10):
            while server._http._tasks:
                await asyncio.sleep(0.01)
        assert (await fetch(server, "/livez"))[0] == 200


@on_both_loops
async def test_health_pages_have_reasons() -> None:
    checks = HealthChecks(started={"store": lambda: None}, ready={"disk": lambda: "disk 97.0 % used, limit 95 %"})
    async with serving(health=checks) as server:
        assert await fetch(server, "/readyz") == (
            503, "text/plain; charset=utf-8", b"disk: disk 97.0 % used, limit 95 %\nnot ok\n"
        )  # fmt: skip
        assert (await fetch(server, "/readyz?verbose"))[2].startswith(b"store: ok\ndisk: disk 97.0 %")
        status, kind, body = await fetch(server, "/readyz", Accept="application/json")
        assert (status, kind, json.loads(body)["checks"][0]) == (
            503, "application/json", {"name": "store", "ok": True, "reason": None}
        )  # fmt: skip
        assert (await fetch(server, "/startupz"))[:1] == (200,)
        assert (await fetch(server, "/livez"))[2] == b"ok\n"


@on_both_loops
async def test_a_stuck_loop_is_reported_by_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: `/livez` answers 503 with the stack while the loop does not turn, and 200 afterwards."""
    monkeypatch.setattr(loop_watch, "STUCK_S", 0.5)
    monkeypatch.setattr(loop_watch, "_LOOK_S", 0.1)
    async with serving() as server:
        answers: list[tuple[int, str, bytes]] = []

        def ask() -> None:
            time.sleep(0.8)
            answers.append(get(server, "/livez"))

        asking = threading.Thread(target=ask)
        asking.start()
        while asking.is_alive():
            time.sleep(0.05)  # the loop does not turn
        assert answers[0][0] == 503
        assert b"the event loop is stuck" in answers[0][2]
        assert b"test_a_stuck_loop" in answers[0][2]
        while server._watch.silent_s >= 0.5:
            await asyncio.sleep(0)
        assert (await fetch(server, "/livez"))[0] == 200


@on_both_loops
async def test_a_port_that_is_taken() -> None:
    async with serving() as server:
        with pytest.raises(UnreachableError, match="cannot listen here"):
            await ObservabilityServer(Registry({}), HealthChecks()).start("127.0.0.1", server.port)


@on_both_loops
async def test_a_collector_that_fails_costs_a_status_and_no_connection() -> None:
    async with serving() as server:

        def broken(_: Snapshot) -> Iterator[None]:
            yield
            raise RuntimeError("a table vanished")

        server.registry.add(broken)
        assert (await fetch(server, "/metrics"))[0] == 500
        assert (await fetch(server, "/livez"))[0] == 200
