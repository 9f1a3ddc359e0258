"""Client of etcd's v3 JSON gateway with endpoint failover, TLS and tokens."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from rocketq.errors import ConfigError
from rocketq.replication.control import ControlError, LeaseLostError

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)
logging.getLogger("httpx").setLevel(logging.WARNING)  # no line per keep-alive

CONNECT_MS: Final = 400
ANSWER_MS: Final = 900
"""Answer timeout; the next request goes to the next endpoint."""
LOGIN_MS: Final = 2_500
"""The same for a login: checking a password is expensive on purpose."""
_FAILED: Final = 400
_NOT_FOUND: Final = 5
_UNAUTHENTICATED: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdConfig:
    endpoints: tuple[str, ...]
    """http:// or https:// addresses of the members."""
    prefix: str = "rocketq"
    user: str = ""
    password: str = ""
    ca_path: str = ""
    cert_path: str = ""
    key_path: str = ""

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ConfigError("haControlStore contains no etcd endpoint")
        if bool(self.cert_path) != bool(self.key_path):
            raise ConfigError("haControlCert and haControlKey must be set together")

    @classmethod
    def from_url(cls, url: str, **given: str) -> EtcdConfig:
        """From etcd://host:2379,host2:2379/prefix; etcds:// is with TLS."""
        parts = urlsplit(url)
        schemes = {"etcd": "http", "etcds": "https"}
        hosts = [host.strip() for host in parts.netloc.split(",") if host.strip()]
        if parts.scheme not in schemes or not hosts:
            raise ConfigError(
                f"haControlStore {url!r} is invalid: expected etcd://host:2379,host2:2379/prefix (etcds:// for TLS)"
            )
        if any("@" in host for host in hosts):
            raise ConfigError("haControlStore must not contain a user: set haControlUser and haControlPassword")
        endpoints = tuple(f"{schemes[parts.scheme]}://{host}" for host in hosts)
        return cls(endpoints=endpoints, prefix=parts.path.strip("/") or "rocketq", **given)

    def tls_context(self) -> ssl.SSLContext | bool:
        if not any(endpoint.startswith("https:") for endpoint in self.endpoints):
            return True
        try:
            context = ssl.create_default_context(cafile=self.ca_path or None)
            if self.cert_path:
                context.load_cert_chain(self.cert_path, self.key_path)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(f"the certificates for etcd cannot be loaded: {error}") from error
        return context


class EtcdGateway:
    """One per broker. Calls raise ControlError when no endpoint answers or etcd returns an error."""

    def __init__(self, config: EtcdConfig) -> None:
        self._httpx = _httpx()
        self._config = config
        self._at = 0
        self._token = ""
        self._client: httpx.AsyncClient = self._httpx.AsyncClient(
            verify=config.tls_context(),
            trust_env=False,
            timeout=self._httpx.Timeout(ANSWER_MS / 1000, connect=CONNECT_MS / 1000),
        )

    async def close(self) -> None:
        await self._client.aclose()

    async def call(self, path: str, body: dict[str, Any], *, again: bool = True) -> dict[str, Any]:
        """`again`: the request is idempotent and may be sent to the next endpoint after a timeout."""
        trouble = ""
        for _ in self._config.endpoints:
            endpoint = self._endpoint
            try:
                return await self._ask(endpoint, path, body)
            except (self._httpx.ConnectError, self._httpx.ConnectTimeout, _NoLeader) as error:
                trouble = self._leave(endpoint, error)
            except (self._httpx.HTTPError, OSError) as error:
                trouble = self._leave(endpoint, error)
                if not again:
                    raise ControlError(f"{trouble}; the outcome is unknown") from error
        raise ControlError(f"no etcd endpoint answers: {trouble}")

    @asynccontextmanager
    async def stream(
        self, path: str, body: dict[str, Any], timeout_ms: int
    ) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        """Stream results from one endpoint; ControlError when it fails, after which the next endpoint is used."""
        endpoint, httpx = self._endpoint, self._httpx
        timeout = httpx.Timeout(timeout_ms / 1000, connect=CONNECT_MS / 1000)
        await self._login_if_needed(endpoint)
        try:
            async with self._client.stream(
                "POST", f"{endpoint}/v3/{path}", json=body, headers=self._headers, timeout=timeout
            ) as answer:
                yield _results(answer)
        except (httpx.HTTPError, httpx.StreamError, OSError) as error:
            if isinstance(error, httpx.ReadTimeout):
                raise TimeoutError from None
            raise ControlError(self._leave(endpoint, error)) from error

    async def _ask(self, endpoint: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        await self._login_if_needed(endpoint)
        answer = await self._post(endpoint, path, body)
        if answer.get("code") == _UNAUTHENTICATED and self._config.user:
            self._token = ""  # tokens expire
            await self._login_if_needed(endpoint)
            answer = await self._post(endpoint, path, body)
        if "error" not in answer:
            return answer
        reason = str(answer.get("message") or answer["error"])
        if answer.get("code") == _NOT_FOUND and "lease not found" in reason:
            raise LeaseLostError(reason)
        if "no leader" in reason or "leader changed" in reason or "timed out" in reason or "not ready" in reason:
            raise _NoLeader(reason) if path != "kv/txn" else ControlError(f"etcd: {reason}")
        raise ControlError(f"etcd: {reason}")

    async def _post(self, endpoint: str, path: str, body: dict[str, Any], answer_ms: int = ANSWER_MS) -> dict[str, Any]:
        timeout = self._httpx.Timeout(answer_ms / 1000, connect=CONNECT_MS / 1000)
        async with asyncio.timeout((CONNECT_MS + answer_ms) / 1000):
            answer = await self._client.post(f"{endpoint}/v3/{path}", json=body, headers=self._headers, timeout=timeout)
        try:
            decoded = json.loads(answer.content.splitlines()[0] if path == "lease/keepalive" else answer.content)
        except (ValueError, IndexError):
            raise ControlError(f"{endpoint} is not an etcd endpoint: status {answer.status_code}") from None
        if not isinstance(decoded, dict):
            raise ControlError(f"{endpoint} is not an etcd endpoint")
        if answer.status_code >= _FAILED:  # before 3.6 the body also contains the error
            decoded.setdefault("error", decoded.get("message") or f"status {answer.status_code}")
        return decoded

    async def _login_if_needed(self, endpoint: str) -> None:
        if not self._config.user or self._token:
            return
        body = {"name": self._config.user, "password": self._config.password}
        answer = await self._post(endpoint, "auth/authenticate", body, LOGIN_MS)
        if "token" not in answer:
            raise ControlError(f"etcd rejected the login: {answer.get('message') or answer.get('error')}")
        self._token = str(answer["token"])

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": self._token} if self._token else {}

    @property
    def _endpoint(self) -> str:
        return self._config.endpoints[self._at % len(self._config.endpoints)]

    def _leave(self, endpoint: str, error: Exception) -> str:
        """Switch to the next endpoint and return the error text. Tokens are valid at all members."""
        trouble = f"{endpoint}: {str(error) or type(error).__name__}"
        if endpoint == self._endpoint:
            self._at += 1
            if len(self._config.endpoints) > 1:
                log.info("etcd endpoint failed, using the next one: %s", trouble)
        return trouble


class _NoLeader(Exception):
    """The member has no leader."""


async def _results(answer: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.aiter_lines():
        if not line.strip():
            continue
        try:
            item = json.loads(line)
        except ValueError:
            raise ControlError("etcd's stream is not JSON") from None
        if "result" not in item:
            raise ControlError(f"etcd: {item.get('error', item)}")
        yield item["result"]


def _httpx() -> ModuleType:
    try:
        return import_module("httpx")
    except ImportError:
        raise ConfigError("etcd support requires httpx: pip install 'rocketq[ha]'") from None
