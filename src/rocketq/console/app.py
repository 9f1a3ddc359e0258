"""The ASGI application: routes, static files, the live socket, and the guard around all of them."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import logging
import mimetypes
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp
from starlette.websockets import WebSocket, WebSocketDisconnect

from rocketq import __version__
from rocketq.console.accounts import User
from rocketq.console.api import access, alerts, changing, dead_letters, messages, pending, reading, session
from rocketq.console.changes import Remembered
from rocketq.console.config import ConsoleConfig
from rocketq.console.context import Console, answer
from rocketq.console.guard import Guard
from rocketq.console.json_text import to_json
from rocketq.console.problems import ProblemError, problem_of, problem_response
from rocketq.console.replays import Replays
from rocketq.console.sampler import Sampler
from rocketq.console.webhooks import Webhooks
from rocketq.errors import RocketQError

log = logging.getLogger(__name__)

STATIC: Final = Path(__file__).parent / "static"
LIVE_MAX: Final = 500
_LIVE_MESSAGE_BYTES_MAX: Final = 4_096
_SHELL: Final = "index.html"
_GZIP_FROM: Final = 512


def make_app(config: ConsoleConfig) -> ASGIApp:
    """The whole console for one process."""
    console = Console(config)
    live = Live()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await console.start()
        replays = Replays(console.history)
        webhooks = Webhooks(console.history, allow_private=config.private_webhooks)
        service = alerts.AlertService(console, webhooks)
        app.state.replays, app.state.alerts = replays, service
        await replays.load()
        await webhooks.start()
        await service.start()
        for cluster in console.clusters.values():
            cluster.sampler.add_listener(live.sampled)
        try:
            yield
        finally:
            await replays.close()
            await webhooks.stop()
            await console.stop()

    app = FastAPI(
        title="RocketQ console",
        version=__version__,
        openapi_url="/api/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    app.state.console = console
    app.state.remembered = Remembered()
    app.state.live = live
    app.add_exception_handler(RocketQError, _failed)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _crashed)
    api = APIRouter(prefix="/api/v1")
    for router in (session.router, reading.router, messages.router, pending.router):
        api.include_router(router)
    api.include_router(dead_letters.reading)
    api.include_router(alerts.reading)
    api.include_router(access.reading)
    if not config.read_only:
        for router in (changing.router, dead_letters.changing, alerts.changing, access.changing):
            api.include_router(router)
    app.include_router(api)
    app.add_api_websocket_route("/api/v1/live", live.serve)
    app.add_route("/{path:path}", StaticFiles(config.base_path).serve, include_in_schema=False)
    return Guard(app, config, console.sessions, console.users)


async def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, RocketQError)
    return problem_response(problem_of(error))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = [
        {"where": ".".join(str(part) for part in each.get("loc", ())), "reason": str(each.get("msg", ""))}
        for each in error.errors()[:20]
    ]
    first = f"{fields[0]['where']}: {fields[0]['reason']}" if fields else "the request is invalid"
    return problem_response(ProblemError(422, "invalid", first, fields=fields))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    codes = {404: "not-found", 405: "not-allowed"}
    return problem_response(ProblemError(error.status_code, codes.get(error.status_code, "failed"), str(error.detail)))


async def _crashed(request: Request, error: Exception) -> Response:
    log.error("path=%s the request failed", request.url.path, exc_info=error)
    return problem_response(ProblemError(500, "failed", "the console failed: see its log"))


@dataclass(frozen=True, slots=True)
class StaticFile:
    body: bytes
    packed: bytes
    kind: str
    tag: str


class StaticFiles:
    """Files of the package, from memory. Every path without a file gets the page, which finds its way by the path."""

    def __init__(self, base_path: str) -> None:
        self._files: dict[str, StaticFile] = {}
        for path in sorted(STATIC.rglob("*")):
            if path.is_file():
                body = path.read_bytes()
                name = path.relative_to(STATIC).as_posix()
                if name == _SHELL:
                    body = body.replace(b'<base href="/">', f'<base href="{base_path}">'.encode())
                self._files[name] = _static_file(body, name)

    async def serve(self, request: Request) -> Response:
        path = request.path_params["path"]
        if path.startswith("api/"):
            return problem_response(ProblemError(404, "not-found", f"there is no route /{path[:200]}"))
        name = path.removeprefix("static/")
        found = self._files.get(name) if path.startswith("static/") else None
        if found is None:
            if path.startswith("static/"):
                return problem_response(ProblemError(404, "not-found", "there is no such file"))
            found = self._files[_SHELL]
        headers = {"etag": found.tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == found.tag:
            return Response(status_code=304, headers=headers)
        if len(found.body) >= _GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            return Response(found.packed, media_type=found.kind, headers=headers)
        return Response(found.body, media_type=found.kind, headers=headers)


def _static_file(body: bytes, name: str) -> StaticFile:
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    if name.endswith(".js"):
        kind = "text/javascript"
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return StaticFile(body, gzip.compress(body, 9), kind, tag)


class Live:
    """One WebSocket per tab. It gets a short note after each sample; the page then asks for what it shows."""

    def __init__(self) -> None:
        self._sockets: dict[WebSocket, str | None] = {}
        self._samplers: dict[str, Sampler] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def sampled(self, sampler: Sampler) -> None:
        """Notify the sockets that show this cluster."""
        self._samplers[sampler.cluster] = sampler
        listeners = [socket for socket, cluster in self._sockets.items() if cluster == sampler.cluster]
        if not listeners:
            return
        sampler.touch()
        text = to_json(self._note(sampler)).decode()
        for socket in listeners:
            task = asyncio.create_task(self._send(socket, text))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _note(sampler: Sampler) -> dict[str, Any]:
        overview = sampler.overview
        return {
            "type": "sample",
            "cluster": sampler.cluster,
            "asOf": overview.taken_ms if overview is not None else None,
            "error": sampler.error,
            "figures": sampler.figures,
            "findings": len(sampler.findings),
            "critical": sum(one.severity == "critical" for one in sampler.findings),
        }

    async def _send(self, socket: WebSocket, text: str) -> None:
        try:
            async with asyncio.timeout(5):
                await socket.send_text(text)
        except (TimeoutError, RuntimeError, WebSocketDisconnect):
            self._sockets.pop(socket, None)
            with suppress(RuntimeError):
                await socket.close(1011)

    async def serve(self, socket: WebSocket) -> None:
        """The client sends which cluster it shows: `{"cluster": NAME}`."""
        if len(self._sockets) >= LIVE_MAX:
            await socket.close(1013)
            return
        console: Console = socket.app.state.console
        user: User = socket.state.user
        await socket.accept()
        self._sockets[socket] = None
        try:
            while True:
                text = await socket.receive_text()
                if len(text) > _LIVE_MESSAGE_BYTES_MAX:
                    await socket.close(1009)
                    return
                name = _wanted_cluster(text)
                cluster = console.clusters.get(name or "")
                if cluster is not None and user.may_see(cluster.name):
                    self._sockets[socket] = cluster.name
                    cluster.sampler.touch()
                    await socket.send_text(to_json(self._note(cluster.sampler)).decode())
                else:
                    self._sockets[socket] = None
        except WebSocketDisconnect:
            return
        finally:
            self._sockets.pop(socket, None)


def _wanted_cluster(text: str) -> str | None:
    import json  # noqa: PLC0415 - beside its only use

    try:
        value = json.loads(text)
    except ValueError:
        return None
    name = value.get("cluster") if isinstance(value, dict) else None
    return name if isinstance(name, str) else None


__all__ = ["answer", "make_app"]
