"""Users and policies of a master at its slaves, and guarded NameServers, over loopback."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from rocketq.access.config import AccessConfig
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.acl import Credentials
from tests.contract.broker.kit import connected, eventually, over_loopback, pull_fields
from tests.contract.broker.test_fenced_brokers import controls as controls  # noqa: PLC0414 - a fixture
from tests.contract.broker.test_fenced_brokers import replicas
from tests.contract.broker.test_plain_access import TOPIC, ask
from tests.contract.broker.test_replication import SLAVE, follows, make_broker, running
from tests.contract.broker.test_user_access import APP, INNER, ROOT, SETTINGS, allow, entry, user


@over_loopback
async def test_a_slave_has_its_masters_users_and_only_brokers_register(tmp_path: Path) -> None:
    """Goal: registration, log and tables work with inner credentials; whoever else registers or writes is denied."""
    config = NameServerConfig(
        port=0,
        kv_path=tmp_path / "ns/kv.json",
        config_path=tmp_path / "ns/ns.properties",
        access=AccessConfig.from_java(SETTINGS),
    )
    names = NameServer(config)
    async with AsyncExitStack() as stack:
        await names.start()
        stack.push_async_callback(names.stop, 100)
        master = make_broker(tmp_path / "master", names.addr, **SETTINGS)
        slave = make_broker(tmp_path / "slave", names.addr, **SLAVE, **SETTINGS)
        await stack.enter_async_context(running(master, slave))
        await follows(master, slave)
        peer, other, ns = await stack.enter_async_context(connected(master.addr, slave.addr, names.addr))
        assert (await user(peer, 3001, "app", password=APP.secret_key)).code == 0
        assert (await ask(peer, ROOT, 17, TOPIC | {"topic": "T"})).code == 0
        await allow(peer, entry("Topic:T", "Pub", "Sub"), entry("Group:g", "Sub"))

        async def is_known() -> bool:
            return (await ask(other, APP, 30, {"topic": "T", "queueId": 0})).code == 0

        await eventually(is_known)
        assert (await ask(other, APP, 11, pull_fields("U"))).code == 16
        assert (await ask(ns, None, 105, {"topic": "T"})).code == 0, "routes may be read by everybody"
        register = {"brokerName": "evil", "brokerAddr": "127.0.0.1:1", "clusterName": "C", "brokerId": 0}
        value = {"namespace": "n", "key": "k", "value": "v"}
        for code, fields in (
            (103, register),
            (104, register),
            (100, value),
            (318, {}),
            (319, {}),
            (205, {"brokerName": "broker-a"}),
        ):
            for who in (None, APP, Credentials("root", "wrong")):
                assert (await ask(ns, who, code, fields)).code == 16, (code, who)
        for who in (ROOT, INNER):
            assert (await ask(ns, who, 100, value)).code == 0


@over_loopback
async def test_a_replica_has_a_change_of_users_when_it_is_answered(tmp_path: Path, controls: object) -> None:
    """Goal: whoever becomes master next knows the same users, passwords and policies."""
    async with replicas(tmp_path, **SETTINGS) as (master, slave), connected(master.addr) as (peer,):
        assert (await user(peer, 3001, "app", password=APP.secret_key)).code == 0
        await allow(peer, entry("Topic:T", "Pub"))
        service = slave.parts.access.service
        assert service is not None
        assert service.users is not None
        assert service.users.state.users["app"].secrets == (APP.secret_key,)
        assert len(service.users.policies_of("app").entries) == 1
        assert (await user(peer, 3003, "app")).code == 0
        assert service.users.get("app") is None
