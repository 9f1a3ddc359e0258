"""Webhooks of alerts: bodies for several receivers, signatures, and delivery with retries for an hour."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import socket
import ssl
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from rocketq.console.alerts import Alert
from rocketq.console.history import History
from rocketq.errors import RocketQError

log = logging.getLogger(__name__)

KINDS: Final = ("rocketq", "slack", "dingtalk", "wecom", "feishu", "pagerduty")
GIVE_UP_S: Final = 3_600
BACKOFF_S: Final = (2, 5, 10, 30, 60)
_TIMEOUT_S: Final = 5


class WebhookError(RocketQError):
    """The address is not allowed, or the receiver did not accept the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """Where alerts go. The secret is never shown again."""

    id: str
    name: str
    url: str
    kind: str = "rocketq"
    secret: str = field(default="", repr=False)
    severities: tuple[str, ...] = ("warning", "critical")
    enabled: bool = True


@dataclass(slots=True, kw_only=True)
class Delivery:
    """One message to one webhook. `state`: waiting, delivered, dead."""

    id: str
    webhook: str
    summary: str
    body: str
    created_s: float
    attempts: int = 0
    next_s: float = 0.0
    state: str = "waiting"
    reason: str | None = None


def check_url(url: str, *, allow_private: bool) -> None:
    """WebhookError for addresses that a console should not be made to call."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise WebhookError(f"webhook {url[:100]!r} is no http or https address")
    if parts.username or parts.password:
        raise WebhookError("a webhook's address has no user name in it: use the secret")
    if allow_private:
        return
    try:
        found = {item[4][0] for item in socket.getaddrinfo(parts.hostname, parts.port or 443, type=socket.SOCK_STREAM)}
    except OSError as error:
        raise WebhookError(f"webhook host {parts.hostname}: {error}") from None
    for addr in found:
        ip = ipaddress.ip_address(str(addr).partition("%")[0])
        if ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast:
            raise WebhookError(f"webhook host {parts.hostname} is {ip}: loopback and link-local are not allowed")


def body_of(kind: str, cluster: str, alert: Alert) -> dict[str, Any]:
    """What the receiver expects."""
    word = {"firing": "FIRING", "resolved": "RESOLVED"}.get(alert.state, alert.state.upper())
    figures = f"{alert.metric}={alert.value:g} (threshold {alert.threshold:g})"
    text = f"[{word}] {alert.name}: {alert.subject} {figures} @{cluster}"
    match kind:
        case "slack":
            return {"text": text}
        case "dingtalk" | "wecom":
            return {"msgtype": "text", "text": {"content": text}}
        case "feishu":
            return {"msg_type": "text", "content": {"text": text}}
        case "pagerduty":
            action = "resolve" if alert.state == "resolved" else "trigger"
            payload = {"summary": text, "source": cluster, "severity": alert.severity}
            return {"event_action": action, "dedup_key": f"{cluster}/{alert.key}", "payload": payload}
    return {"version": 1, "cluster": cluster, "text": text, "alert": asdict(alert)}


def signature(secret: str, body: bytes) -> str:
    """`sha256=` and the HMAC of the body."""
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def signed_request(hook: Webhook, body: dict[str, Any], now_s: float) -> tuple[str, bytes, dict[str, str]]:
    """Address, body and headers, signed the way each receiver checks it."""
    url, headers = hook.url, {"content-type": "application/json", "user-agent": "rocketq-console"}
    if hook.secret and hook.kind == "dingtalk":
        stamp = str(int(now_s * 1000))
        digest = hmac.new(hook.secret.encode(), f"{stamp}\n{hook.secret}".encode(), hashlib.sha256).digest()
        url += ("&" if "?" in url else "?") + urlencode({"timestamp": stamp, "sign": base64.b64encode(digest).decode()})
    elif hook.secret and hook.kind == "feishu":
        stamp = str(int(now_s))
        digest = hmac.new(f"{stamp}\n{hook.secret}".encode(), b"", hashlib.sha256).digest()
        body = {"timestamp": stamp, "sign": base64.b64encode(digest).decode(), **body}
    elif hook.secret and hook.kind == "pagerduty":
        body = {"routing_key": hook.secret, **body}
    data = json.dumps(body, ensure_ascii=False).encode()
    if hook.secret and hook.kind in ("rocketq", "slack", "wecom"):
        headers["x-rocketq-signature"] = signature(hook.secret, data)
    return url, data, headers


def post(url: str, body: bytes, headers: Mapping[str, str], *, allow_private: bool) -> None:
    """One attempt, without following redirects. WebhookError unless the answer is 2xx."""
    check_url(url, allow_private=allow_private)
    parts = urlsplit(url)
    assert parts.hostname is not None
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl.create_default_context()
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    try:
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        connection.request("POST", path, body, dict(headers))
        answer = connection.getresponse()
        answer.read(4_096)
        if not 200 <= answer.status < 300:
            raise WebhookError(f"the receiver answered {answer.status}")
    except (OSError, http.client.HTTPException) as error:
        raise WebhookError(f"{parts.hostname}: {error}") from None
    finally:
        connection.close()


class Webhooks:
    """Delivers in the order of time; what waits survives a restart."""

    def __init__(self, history: History, *, allow_private: bool) -> None:
        self._history = history
        self._allow_private = allow_private
        self.hooks: dict[str, Webhook] = {}
        self.deliveries: dict[str, Delivery] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for text in (await self._history.notes("webhook/")).values():
            value = json.loads(text)
            value["severities"] = tuple(value["severities"])
            self.hooks[value["id"]] = Webhook(**value)
        for text in (await self._history.notes("delivery/")).values():
            delivery = Delivery(**json.loads(text))
            self.deliveries[delivery.id] = delivery
        self._task = asyncio.create_task(self._run(), name="rocketq-webhooks")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def set(self, hook: Webhook) -> None:
        await asyncio.to_thread(check_url, hook.url, allow_private=self._allow_private)
        self.hooks[hook.id] = hook
        await self._history.keep(f"webhook/{hook.id}", json.dumps(asdict(hook)))

    async def remove(self, hook_id: str) -> None:
        self.hooks.pop(hook_id, None)
        await self._history.drop(f"webhook/{hook_id}")

    async def test(self, hook: Webhook, cluster: str) -> None:
        """Send a test alert now; WebhookError says what went wrong."""
        now_ms = time.time_ns() // 1_000_000
        alert = Alert(
            rule="test",
            name="Test of the webhook",
            subject="test",
            metric="test",
            severity="info",
            state="firing",
            value=1,
            threshold=0,
            since_ms=now_ms,
            fired_ms=now_ms,
        )
        url, data, headers = signed_request(hook, body_of(hook.kind, cluster, alert), time.time())
        await asyncio.to_thread(post, url, data, headers, allow_private=self._allow_private)

    async def add(self, cluster: str, alert: Alert) -> None:
        """Queue an alert for every webhook that wants its severity."""
        for hook in self.hooks.values():
            if not hook.enabled or alert.severity not in hook.severities:
                continue
            delivery = Delivery(
                id=uuid.uuid4().hex,
                webhook=hook.id,
                summary=f"{alert.state} {alert.name}: {alert.subject}",
                body=json.dumps(body_of(hook.kind, cluster, alert), ensure_ascii=False),
                created_s=time.time(),
            )
            self.deliveries[delivery.id] = delivery
            await self._save(delivery)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now_s = time.time()
            due = [one for one in self.deliveries.values() if one.state == "waiting" and one.next_s <= now_s]
            for delivery in due:
                try:
                    await self._try(delivery)
                except Exception:  # one bad delivery must not stop the others
                    log.exception("delivery=%s failed", delivery.id)
                    delivery.next_s = now_s + BACKOFF_S[-1]
            self._forget()
            waits = [one.next_s for one in self.deliveries.values() if one.state == "waiting"]
            delay_s = max(0.1, min(waits) - time.time()) if waits else 3_600.0
            try:
                async with asyncio.timeout(delay_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def _try(self, delivery: Delivery) -> None:
        hook = self.hooks.get(delivery.webhook)
        if hook is None:
            delivery.state, delivery.reason = "dead", "the webhook was removed"
        else:
            url, data, headers = signed_request(hook, json.loads(delivery.body), time.time())
            headers["x-rocketq-delivery"] = delivery.id
            try:
                await asyncio.to_thread(post, url, data, headers, allow_private=self._allow_private)
                delivery.state, delivery.reason = "delivered", None
            except WebhookError as error:
                delivery.reason = str(error)
                delivery.next_s = time.time() + BACKOFF_S[min(delivery.attempts, len(BACKOFF_S) - 1)]
                if time.time() - delivery.created_s > GIVE_UP_S:
                    delivery.state = "dead"
                    log.warning("webhook=%s given up: %s", hook.name, error)
            delivery.attempts += 1
        await self._save(delivery)

    def _forget(self) -> None:
        done = [one for one in self.deliveries.values() if one.state != "waiting"]
        for one in sorted(done, key=lambda each: each.created_s)[:-100]:
            del self.deliveries[one.id]

    async def _save(self, delivery: Delivery) -> None:
        if delivery.state == "waiting":
            await self._history.keep(f"delivery/{delivery.id}", json.dumps(asdict(delivery)))
        else:
            await self._history.drop(f"delivery/{delivery.id}")
