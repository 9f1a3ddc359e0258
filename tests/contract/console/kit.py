"""A console over a real cluster of two brokers, and a client that carries cookie and token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import httpx

from rocketq.client import Admin, Message, Producer
from rocketq.console import ClusterTarget, ConsoleConfig
from rocketq.console.server import ConsoleServer
from rocketq.testing import EmbeddedCluster
from rocketq.testing.loop_thread import LoopThread

SETTINGS = {"messageDelayLevel": " ".join(["1s"] * 18), "traceTopicEnable": "true"}
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=2</script>'
ORDERS, DEAD = 60, 12


def fill(addr: str) -> None:
    """Topics, messages, a group that is behind, and dead letters as a broker makes them."""
    with Admin(addr) as admin, Producer("shop", name_servers=addr) as producer:
        admin.topics.create("Orders", queues=2)
        admin.topics.create("Quiet", queues=1)
        admin.topics.create("%DLQ%billing", queues=1)
        admin.groups.set("billing", retry_max=3)
        for n in range(ORDERS):
            body = json.dumps({"order": {"id": n, "total": n * 10}, "note": HOSTILE}).encode()
            tag = "paid" if n % 2 else "new"
            producer.send(Message(topic="Orders", body=body, tag=tag, keys=(f"order-{n}",)))
        for n in range(DEAD):
            properties = {"DLQ_ORIGIN_TOPIC": "Orders", "DLQ_ORIGIN_MESSAGE_ID": f"ID{n}", "ERROR": f"bank {n} is down"}
            message = Message(
                topic="%DLQ%billing", body=b'{"dead": %d}' % n, keys=(f"dead-{n}",), properties=properties
            )
            producer.send(message)
        admin.offsets.set("billing", {one.queue: 0 for one in admin.offsets.get("billing", "Orders")})


class ApiClient:
    """What a script does: cookie and token from /me, then requests."""

    def __init__(self, url: str, *, sign_in: bool = True) -> None:
        self.url = url
        self.http = httpx.Client(base_url=url, timeout=30, trust_env=False)
        self.token = self.http.get("api/v1/me").json()["token"] if sign_in else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(f"api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def send(self, method: str, path: str, body: Any = None, **query: Any) -> httpx.Response:
        headers = {"x-rocketq-token": self.token or ""}
        return self.http.request(method, f"api/v1{path}", json=body, params=query, headers=headers)

    def post(self, path: str, body: Any = None, **query: Any) -> Any:
        answer = self.send("POST", path, body, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def lines(self, path: str, **query: Any) -> list[Any]:
        answer = self.http.get(f"api/v1{path}", params=query)
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.text.splitlines()]


@contextmanager
def console(addr: str, folder: Path, **changes: Any) -> Iterator[str]:
    """The address of a console that samples every second."""
    target = ClusterTarget(name="default", name_servers=(addr,))
    config = ConsoleConfig(clusters=(target,), data_dir=folder, port=0, sample_s=1.0, broker_timeout_ms=2_000)
    server = ConsoleServer(replace(config, **changes))
    thread = LoopThread("rocketq-console")
    try:
        thread.run(server.start())
        yield server.url
    finally:
        thread.run(server.stop())
        thread.close()


@contextmanager
def cluster(settings: Mapping[str, str] | None = None) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=2, settings={**SETTINGS, **(settings or {})}) as running:
        fill(running.name_server_addr)
        yield running
