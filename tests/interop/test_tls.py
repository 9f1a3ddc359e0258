"""Apache's tools over TLS with our NameServer and broker, which accept nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cache import Unavailable
from .mqadmin import MqAdmin
from .our_cluster import OurCluster
from .release import obtain

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_mqadmin_over_tls(version: str, tmp_path: Path) -> None:
    """Goal: with tls.enable=true the tool reaches NameServer and broker; without it neither answers."""
    try:
        release = obtain(version)
    except Unavailable as reason:
        pytest.skip(str(reason))
    cluster = OurCluster(tmp_path)
    ports = ["--namesrv-port", "0", "--broker-port", "0"]
    cluster.start("up", "--data-dir", str(tmp_path / "data"), *ports, "--set", "tls.server.mode=enforcing")
    try:
        with MqAdmin(release, cluster.nameserver_addr, tmp_path / "tls", {"tls.enable": "true"}) as admin:
            assert "DefaultCluster" in admin("clusterList")
            admin("updateTopic", "-c", "DefaultCluster", "-t", "OverTls")
            assert "OverTls" in admin("topicList")
        with MqAdmin(release, cluster.nameserver_addr, tmp_path / "plain") as admin:
            assert "Exception" in admin("topicList", fails=True)
    finally:
        cluster.stop()
