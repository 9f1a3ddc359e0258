"""Replicas and an etcd that is not open to everybody: TLS, passwords, certificates of clients."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rocketq.replication.control_etcd import EtcdControl
from rocketq.replication.etcd_gateway import EtcdConfig
from rocketq.testing.etcd import PACKAGE, LocalEtcd, find_etcd
from tests.contract.replication.test_control_stores import in_time
from tests.contract.replication.test_etcd_faults import read_soon, switch_auth_on, write_certificate
from tests.sim.kernel_forms import COMPILED_IS_TESTED_TOO

from .failover_history import Answers, check_nothing_lost
from .failover_load import Watcher, grow, sending
from .failover_turns import kill
from .replica_processes import ReplicaProcesses

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"),
    pytest.mark.skipif(COMPILED_IS_TESTED_TOO, reason="what decides has no kernel in it: run with the compiled one"),
]


async def switch_auth_on_at(config: EtcdConfig) -> None:
    store = EtcdControl(config)
    try:
        await read_soon(store)
        await switch_auth_on(store)
    finally:
        await store.close()


@pytest.mark.parametrize("by", ["password", "certificate"])
def test_a_failover_with_an_etcd_that_asks_who_one_is(tmp_path: Path, by: str) -> None:
    """Goal: brokers get in by their settings alone, with TLS, and fail over as with an open one."""
    cert, key = write_certificate(tmp_path)
    extra = [f"--cert-file={cert}", f"--key-file={key}"]
    settings, known = {"haControlCa": str(cert)}, {"ca_path": str(cert)}
    if by == "certificate":
        extra += ["--client-cert-auth", f"--trusted-ca-file={cert}"]
        settings |= {"haControlCert": str(cert), "haControlKey": str(key)}
        known |= {"cert_path": str(cert), "key_path": str(key)}
    answers = Answers()

    async def work(cluster: ReplicaProcesses, config: EtcdConfig) -> None:
        async with Watcher(cluster, config) as watcher:
            epoch, master = await watcher.master()
            async with sending(cluster.name_server, answers):
                await grow(answers, cluster)
                await kill(master, watcher, epoch)
                await grow(answers, cluster)
                await watcher.master()

    with LocalEtcd(tmp_path / "secured", extra=extra, scheme="https") as server:
        url = server.url.replace("etcd:", "etcds:")
        config = EtcdConfig.from_url(url, **known)
        if by == "password":
            in_time(switch_auth_on_at(config))
            settings |= {"haControlUser": "root", "haControlPassword": "secret"}
            config = EtcdConfig.from_url(url, **known, user="root", password="secret")
        with ReplicaProcesses(tmp_path, **settings, haControlStore=url) as cluster:
            asyncio.run(work(cluster, config))
            cluster.stop_brokers()
    check_nothing_lost(tmp_path, answers)
