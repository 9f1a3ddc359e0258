"""A cluster whose NameServer and broker accept TLS only."""

from __future__ import annotations

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.broker import Broker, BrokerConfig
from rocketq.errors import ConnectionClosedError, UnreachableError
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.remoting import ClientTls, Connection, ConnectionPool, TlsConfig, TlsMode
from rocketq.remoting.certificates import write_self_signed
from rocketq.store import StoreConfig
from tests.contract.broker.kit import eventually, over_loopback
from tests.contract.broker.test_lifecycle import SMALL


@over_loopback
async def test_an_enforcing_cluster_works_over_tls_and_knows_the_name_in_a_client_certificate(tmp_path: Path) -> None:
    """Goal: registration and both broker ports use verified TLS; plain peers are disconnected."""
    cert, key = write_self_signed(tmp_path)
    server = TlsConfig(
        mode=TlsMode.ENFORCING, cert_path=cert, key_path=key, trust_path=cert, client_auth=ssl.CERT_OPTIONAL
    )
    client = ClientTls(trust_path=cert)
    names = NameServer(
        NameServerConfig(port=0, kv_path=tmp_path / "kv.json", config_path=tmp_path / "ns.properties"), tls=server
    )
    await names.start()
    config = BrokerConfig(name="broker-0", port=0, name_servers=names.addr)
    broker = Broker(config, StoreConfig(root=tmp_path / "store", **SMALL), tls=server, client_tls=client)  # type: ignore[arg-type]
    seen: list[str | None] = []

    def note(request: Command, connection: Connection) -> None:
        seen.append(connection.certificate_name)

    broker.guards.append(note)
    await broker.start()
    pool = ConnectionPool(tls=client)
    named = ConnectionPool(tls=replace(client, cert_path=cert, key_path=key))
    plain = ConnectionPool()
    route = Command(code=RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "TBW102"})
    try:

        async def is_routed() -> bool:
            return (await pool.invoke(names.addr, route)).code == 0

        await eventually(is_routed)
        info = Command(code=RequestCode.GET_BROKER_RUNTIME_INFO)
        vip = f"127.0.0.1:{broker.config.port - 2}"
        assert [(await one.invoke(addr, info)).code for one in (pool, named) for addr in (broker.addr, vip)] == [0] * 4
        assert seen == [None, None, "rocketq", "rocketq"]
        for addr in (names.addr, broker.addr, vip):
            with pytest.raises(ConnectionClosedError):
                await plain.invoke(addr, info)
    finally:
        for one in (pool, named, plain):
            await one.close()
        await broker.stop()
        await names.stop()


@over_loopback
async def test_a_certificate_for_another_host_is_rejected(tmp_path: Path) -> None:
    cert, key = write_self_signed(tmp_path)
    names = NameServer(
        NameServerConfig(
            port=0, host="127.0.0.2", kv_path=tmp_path / "kv.json", config_path=tmp_path / "ns.properties"
        ),
        tls=TlsConfig(cert_path=cert, key_path=key),
    )
    await names.start()
    strict = ConnectionPool(tls=ClientTls(trust_path=cert))
    relaxed = ConnectionPool(tls=ClientTls(trust_path=cert, verify_host=False))
    command = Command(code=RequestCode.GET_BROKER_CLUSTER_INFO)
    try:
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.2"):
            await strict.invoke(names.addr, command)
        assert (await relaxed.invoke(names.addr, command)).code == 0
    finally:
        await strict.close()
        await relaxed.close()
        await names.stop()
