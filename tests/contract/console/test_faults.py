"""A broker that is away, a NameServer that is away, a receiver of webhooks that is away, a console that is killed."""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from rocketq.client import Admin
from rocketq.testing import EmbeddedCluster
from rocketq.testing.loop_thread import LoopThread

from .kit import ApiClient, console
from .test_api import until

AT = "/clusters/default"


def test_a_missing_broker_is_named_and_the_rest_is_shown(tmp_path: Path) -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        with Admin(cluster.name_server_addr) as admin:
            admin.topics.create("Both", queues=1)
            admin.topics.create("Only", queues=1, broker="broker-1")
        with console(cluster.name_server_addr, tmp_path, broker_timeout_ms=1_000) as url, ApiClient(url) as api:
            until(lambda: api.get(f"{AT}/overview")["figures"]["brokers_missing"] == 0)
            cluster.stop_broker(0)
            found = until(lambda: _when_missing(api))
            assert found["partial"][0]["reason"]
            assert found["findings"][0]["code"] in ("broker-missing",)
            page = api.get(f"{AT}/topics")
            assert [one["name"] for one in page["items"]] == ["Both", "Only"]
            began = time.monotonic()
            api.get(f"{AT}/overview")
            assert time.monotonic() - began < 3.5


def _when_missing(api: ApiClient) -> dict[str, object] | None:
    """A broker that stops in order is unregistered: it is missing while the NameServer still knows it."""
    found = api.get(f"{AT}/overview")
    if found["figures"]["brokers_missing"]:
        return dict(found)
    if found["figures"]["brokers"] == 1:
        return {"partial": [{"reason": "unregistered"}], "findings": [{"code": "broker-missing"}]}
    return None


def test_without_a_cluster_pages_say_why(tmp_path: Path) -> None:
    with console("127.0.0.1:9", tmp_path) as url, ApiClient(url) as api:
        answer = until(lambda: _problem(api))
        assert answer["code"] == "no-sample"
        assert "127.0.0.1:9" in answer["detail"]
        assert api.get("/clusters")["items"][0]["error"]
        assert api.http.get("api/v1/health").status_code == 503


def _problem(api: ApiClient) -> dict[str, str] | None:
    answer = api.http.get(f"api/v1{AT}/overview")
    return answer.json() if answer.status_code == 503 and "127.0.0.1" in answer.json()["detail"] else None


class Receiver(HTTPServer):
    """Keeps what it got; refuses while `broken`."""

    broken = True

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.server.broken:
            self.server.got.append(({key.lower(): value for key, value in self.headers.items()}, body))
        self.send_response(500 if self.server.broken else 200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def test_a_webhook_is_signed_and_delivered_once_after_the_receiver_is_back(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    receiver = Receiver()
    address = f"http://127.0.0.1:{receiver.server_address[1]}/hook?a=1"
    hook = {"name": "ops", "url": address, "secret": "s3cret"}
    try:
        with console(cluster.name_server_addr, tmp_path / "a") as url, ApiClient(url) as api:
            refused = api.send("POST", f"{AT}/alerts/webhooks", hook)
            assert "loopback" in refused.json()["detail"]
        with console(cluster.name_server_addr, tmp_path / "b", private_webhooks=True) as url, ApiClient(url) as api:
            made = api.post(f"{AT}/alerts/webhooks", hook)
            assert "secret" not in made
            assert made["has_secret"]
            api.post(f"{AT}/alerts/rules", {"id": "x", "name": "lag", "metric": "group.lag", "for_s": 0})
            until(lambda: any(one["attempts"] for one in api.get(f"{AT}/alerts")["deliveries"]))
            receiver.broken = False
            until(lambda: any(b"billing" in body for _, body in receiver.got), 20)
            time.sleep(1.5)  # a second delivery would come within a sample
        (headers, body) = next(one for one in receiver.got if b"billing" in one[1])
        expected = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
        assert headers["x-rocketq-signature"] == f"sha256={expected}"
        assert json.loads(body)["alert"]["subject"] == "billing"
        assert sum(b'"billing"' in one for _, one in receiver.got) == 1
    finally:
        receiver.shutdown()
        receiver.server_close()


def test_a_replay_that_a_restart_broke_off_says_what_was_done(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    with Admin(cluster.name_server_addr) as admin:
        admin.topics.create("Slow", queues=1)
    with console(cluster.name_server_addr, tmp_path) as url, ApiClient(url) as api:
        letters = [one["ref"] for one in api.get(f"{AT}/dlq/billing/letters")["items"]]
        edits = [{"letter": letters[-1], "keys": ["edited"]}]
        body = {"letters": letters, "to": "Slow", "per_second": 4, "edits": edits}
        run = api.post(f"{AT}/dlq/billing:replay", body)["items"][0]["value"]["run"]
        until(lambda: api.get(f"{AT}/runs/{run}")["counts"].get("sent", 0) >= 2)
    with console(cluster.name_server_addr, tmp_path) as url, ApiClient(url) as api:
        found = api.get(f"{AT}/runs/{run}")
        assert found["state"] in ("stopped", "broken-off")
        sent = found["counts"]["sent"]
        assert 2 <= sent < len(letters)
        api.post(f"{AT}/runs/{run}:continue")
        done = until(lambda: (one := api.get(f"{AT}/runs/{run}"))["state"] == "done" and one, 30)
        assert done["counts"]["sent"] + done["counts"].get("unknown", 0) == len(letters)
        lines = api.lines(f"{AT}/messages:search", topic="Slow", n=1000)
        copies = [line["message"]["keys"][0] for line in lines if "message" in line]
        assert len(copies) == len(set(copies))
        assert "edited" in copies


def test_the_console_beside_up_prints_its_address(tmp_path: Path, capsys: object) -> None:
    from rocketq.cli.console_process import WithConsole  # noqa: PLC0415 - asyncio's child processes need a main thread

    class Nobody:
        async def start(self) -> None: ...

        async def stop(self) -> None: ...

        def addresses(self) -> dict[str, str]:
            return {"namesrv": "127.0.0.1:9"}

    thread = LoopThread("rocketq-up")
    both = WithConsole(Nobody(), tmp_path, port=0)
    try:
        thread.run(both.start())
        until((tmp_path / "console" / "ready.json").exists, 60)
        address = json.loads((tmp_path / "console" / "ready.json").read_text())["addresses"]["console"]
        with ApiClient(address) as api:
            assert api.get("/me")["clusters"] == ["default"]
    finally:
        thread.run(both.stop())
        thread.close()
