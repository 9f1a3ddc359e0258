"""Settings of replicas: what fits together, what is kept from tools."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig, BrokerRole
from rocketq.broker.ha.fenced_replicas import agent_settings
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.replication.election import LeaseMode
from rocketq.store import FlushType, StoreConfig

GIVEN = {"haProtocol": "fenced", "haControlStore": "etcd://127.0.0.1:2379", "brokerName": "b"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"haProtocol": "raft"}, "neither classic nor fenced"),
        ({"haControlStore": ""}, "needs haControlStore"),
        ({"haLeaseMode": "lax"}, "strict or available"),
        ({"minInSyncReplicas": "0"}, "minInSyncReplicas"),
    ],
    ids=["protocol", "control", "mode", "in-sync"],
)
def test_what_does_not_fit_is_told_in_one_line(change: dict[str, str], words: str) -> None:
    """Goal: a broker that could not keep its promises does not start."""
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.from_java(GIVEN | change)


def test_leases_that_could_overlap_stop_the_start() -> None:
    """Goal: T is at least L + 2 s."""
    config = BrokerConfig.from_java(GIVEN | {"haLeaseTtl": "4000"})
    with pytest.raises(ConfigError, match="haLeaseTtl"):
        agent_settings(config, FlushType.ASYNC_FLUSH)


def test_settings_reach_the_rules() -> None:
    """Goal: every key has its effect."""
    given = {"haLeaseMode": "strict", "minInSyncReplicas": "2", "allAck": "false", "haMaxTimeSlaveNotCatchup": "7"}
    settings = agent_settings(BrokerConfig.from_java(GIVEN | given), FlushType.SYNC_FLUSH)
    assert settings.lease_mode is LeaseMode.STRICT
    assert (settings.rules.min_in_sync, settings.rules.all_ack, settings.rules.sync_flush) == (2, False, True)
    assert settings.rules.behind_ms_max == 7


def test_a_new_role_is_told_and_the_password_is_not(tmp_path: Path) -> None:
    """Goal: tools that ask for all settings get no secret."""
    config = BrokerConfig.from_java(GIVEN | {"haControlUser": "u", "haControlPassword": "a secret"})
    settings = Settings(config, StoreConfig(root=tmp_path), tmp_path / "kept", version=DataVersion())
    assert "a secret" not in settings.text()
    assert "haControlPassword=(hidden)" in settings.text()
    told: list[BrokerRole] = []
    settings.listeners.append(lambda before, after: told.append(after.role))
    settings.become(BrokerRole.SLAVE, 3)
    assert (settings.config.broker_id, told) == (3, [BrokerRole.SLAVE])
