"""A broker and clients that get their NameServers from an HTTP address server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rocketq.broker.admin import registration
from rocketq.client.blocking import BlockingClient
from rocketq.client.session import Session, SessionConfig
from rocketq.errors import UnreachableError
from rocketq.protocol.codes import RequestCode
from rocketq.remoting.address_server import AddressServer
from tests.contract.broker.kit import eventually, over_loopback
from tests.contract.broker.test_lifecycle import broker, is_routed, name_server


class Addresses:
    """What the HTTP server answers, and which paths it was asked for."""

    def __init__(self) -> None:
        self.text = ""
        self.paths: list[str] = []
        addresses = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                addresses.paths.append(self.path)
                self.send_response(200 if addresses.text else 500)
                self.end_headers()
                self.wfile.write(f"{addresses.text}\nsecond line".encode())

            def log_message(self, *_: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.domain = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def addresses() -> Iterator[Addresses]:
    found = Addresses()
    thread = threading.Thread(target=found.server.serve_forever, daemon=True)
    thread.start()
    yield found
    found.server.shutdown()
    found.server.server_close()
    thread.join()


@over_loopback
async def test_brokers_and_clients_follow_the_address_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, addresses: Addresses
) -> None:
    """Goal: without namesrvAddr a broker registers where the list says, and follows a changed list."""
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setattr(registration, "FIRST_PERIOD_MS", 50)
    monkeypatch.setattr(registration, "REFRESH_S", 0.05)
    first, second = name_server(tmp_path / "1"), name_server(tmp_path / "2")
    await first.start()
    await second.start()
    addresses.text = first.addr
    one = broker(tmp_path, fetch_name_servers=True, address_server_domain=addresses.domain)
    await one.start()
    session = Session(config=SessionConfig(address_server=AddressServer(addresses.domain, unit_name="u")))
    try:
        assert await is_routed(first.addr)
        assert (await session.call_name_server(code=RequestCode.GET_BROKER_CLUSTER_INFO)).code == 0
        assert set(addresses.paths) == {"/rocketmq/nsaddr", "/rocketmq/nsaddr-u?nofix=1"}
        monkeypatch.setenv("rocketmq.namesrv.domain", addresses.domain)

        def ask() -> int:
            with BlockingClient() as client:
                return client.call_name_server(code=RequestCode.GET_BROKER_CLUSTER_INFO).code

        assert await asyncio.to_thread(ask) == 0
        addresses.text = f"{first.addr};{second.addr}"
        await eventually(lambda: is_routed(second.addr))
    finally:
        await session.close()
        await one.stop()
        await first.stop()
        await second.stop()


@over_loopback
async def test_an_address_server_without_an_answer_is_named_in_the_error(addresses: Addresses) -> None:
    session = Session(config=SessionConfig(address_server=AddressServer(addresses.domain)))
    try:
        with pytest.raises(UnreachableError, match="HTTP status 500"):
            await session.cluster()
    finally:
        await session.close()
