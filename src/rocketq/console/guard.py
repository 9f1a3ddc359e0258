"""What every request passes before a route sees it: prefix, host, size, rate, origin, session, token, and headers.

socket -> prefix -> Host -> size of the body -> rate -> who (cookie, bearer token, proxy header) -> origin and token
"""

from __future__ import annotations

import hmac
import ipaddress
import time
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rocketq.console.accounts import TOKEN_PREFIX, RateLimit, Session, Sessions, User, UsersFile
from rocketq.console.config import LOOPBACK_NAMES, ConsoleConfig, Login, Role
from rocketq.console.problems import ProblemError, problem_response

COOKIE: Final = "rocketq_console"
TOKEN_HEADER: Final = "x-rocketq-token"
BODY_BYTES_MAX: Final = 8 << 20
LOCAL_USER: Final = User(name="local", role=Role.ADMIN)
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN: Final = frozenset({"/api/v1/me", "/api/v1/login", "/api/v1/openapi.json", "/api/v1/health"})
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'self'; img-src 'self' data:; object-src 'none'; frame-ancestors 'none'; base-uri 'self'; "
        b"form-action 'self'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class TooLargeError(Exception):
    """The body of a request grew beyond the limit while it was read."""


class Guard:
    """ASGI middleware. A route finds `user` and `session` in the state of its request."""

    def __init__(self, app: ASGIApp, config: ConsoleConfig, sessions: Sessions, users: UsersFile | None) -> None:
        self._app = app
        self._config = config
        self._sessions = sessions
        self._users = users
        self._limit = RateLimit(per_s=200, burst=600)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            self._admit(scope)
        except ProblemError as problem:
            await self._reject(problem, scope, receive, send)
            return
        if scope["type"] == "websocket":
            await self._app(scope, receive, send)
            return
        await self._serve(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        self._strip_prefix(scope)
        headers = Headers(scope=scope)
        now_s = time.time()
        source = client_of(scope)
        self._check_host(headers)
        if (length := headers.get("content-length")) is not None and (
            not length.isdigit() or int(length) > BODY_BYTES_MAX
        ):
            raise ProblemError(413, "too-large", f"a request has at most {BODY_BYTES_MAX >> 20} MiB")
        if not self._limit.allows(source, now_s):
            raise ProblemError(429, "too-many-requests", "too many requests: slow down", retriable=True)
        user, session, by_token = self._identify(scope, headers, now_s)
        scope.setdefault("state", {})
        scope["state"]["user"] = user
        scope["state"]["session"] = session
        path = scope["path"]
        if path.startswith("/api/") and path not in _OPEN and user is None:
            raise ProblemError(401, "sign-in", "sign in first")
        if scope["type"] == "websocket":
            self._check_origin(scope, headers, required=True)
        elif scope["method"] not in _SAFE:
            self._check_origin(scope, headers, required=False)
            if not by_token and path != "/api/v1/login":
                given = headers.get(TOKEN_HEADER, "")
                if session is None or not hmac.compare_digest(given.encode(), session.csrf.encode()):
                    raise ProblemError(403, "token-missing", f"changing requests need the header {TOKEN_HEADER}")

    def _strip_prefix(self, scope: Scope) -> None:
        prefix = self._config.base_path
        path = scope["path"]
        if prefix == "/":
            return
        if path + "/" == prefix:
            path = prefix
        if not path.startswith(prefix):
            raise ProblemError(404, "not-found", f"the console is at {prefix}")
        scope["path"] = path[len(prefix) - 1 :]
        scope["raw_path"] = scope["path"].encode()

    def _check_host(self, headers: Headers) -> None:
        """Rejects DNS rebinding: a foreign page that reaches a console on loopback through its own host name."""
        if not self._config.is_loopback:
            return
        name = host_name(headers.get("host", ""))
        if name not in (*LOOPBACK_NAMES, self._config.host, *self._config.host_names):
            raise ProblemError(403, "wrong-host", "the Host header names another host: see --host-name")

    def _identify(self, scope: Scope, headers: Headers, now_s: float) -> tuple[User | None, Session | None, bool]:
        bearer = headers.get("authorization", "")
        if bearer.lower().startswith("bearer ") and bearer[7:].startswith(TOKEN_PREFIX):
            user = self._users.by_token(bearer[7:].strip(), now_s) if self._users is not None else None
            if user is None:
                raise ProblemError(401, "token-invalid", "the token is unknown or has expired")
            return user, None, True
        session = self._sessions.get(_cookie(headers), now_s)
        if session is not None:
            return session.user, session, False
        if (name := self._proxy_user(scope, headers)) is not None:
            user = User(name=name, role=self._config.proxy_role)
            return user, None, False
        if self._config.login is Login.NONE and self._config.proxy_user_header is None:
            return LOCAL_USER, None, False
        return None, None, False

    def _proxy_user(self, scope: Scope, headers: Headers) -> str | None:
        name = self._config.proxy_user_header
        if name is None or client_of(scope) not in self._config.proxy_addrs:
            return None
        return headers.get(name) or None

    def _check_origin(self, scope: Scope, headers: Headers, *, required: bool) -> None:
        origin = headers.get("origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise ProblemError(403, "wrong-origin", "the request comes from another site")
        if origin is None:
            if required:
                raise ProblemError(403, "wrong-origin", "the Origin header is missing")
            return
        if urlsplit(origin).netloc.lower() != headers.get("host", "").lower():
            raise ProblemError(403, "wrong-origin", f"the request comes from {origin[:100]}")

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = 0
        started = False

        async def limited() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > BODY_BYTES_MAX:
                raise TooLargeError
            return message

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message["headers"] = [*message.get("headers", []), *self._headers(scope)]
            await send(message)

        try:
            await self._app(scope, limited, with_headers)
        except TooLargeError:
            if not started:
                problem = ProblemError(413, "too-large", f"a request has at most {BODY_BYTES_MAX >> 20} MiB")
                await self._reject(problem, scope, receive, send)

    def _headers(self, scope: Scope) -> list[tuple[bytes, bytes]]:
        found = list(_HEADERS)
        if scope["path"].startswith("/api/"):
            found.append((b"cache-control", b"no-store"))
        if self._config.cert is not None:
            found.append((b"strict-transport-security", b"max-age=31536000"))
        return found

    async def _reject(self, problem: ProblemError, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": problem.code})
            return
        response = problem_response(problem)
        response.raw_headers.extend(self._headers(scope))
        await response(scope, receive, send)


def client_of(scope: Mapping[str, Any]) -> str:
    """The address of the peer."""
    client = scope.get("client")
    return str(client[0]) if client else "local"


def host_name(host: str) -> str:
    """Without port and brackets."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    try:
        ipaddress.IPv6Address(name)
    except ValueError:
        return name.partition(":")[0]
    return name


def _cookie(headers: Headers) -> str | None:
    try:
        morsel = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return None
    return None if morsel is None else morsel.value
