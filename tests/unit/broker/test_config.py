"""Settings in Apache's keys, read, shown and changed while running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.broker.admin.settings import Settings
from rocketq.broker.config import BrokerConfig, describe_unknown, ineffective_settings, parse_settings, unknown_keys
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.config_text import parse_config
from rocketq.remoting import RequestRejected
from rocketq.store import FlushType, StoreConfig

EXPORTED = [
    "brokerClusterName",
    "brokerId",
    "brokerName",
    "brokerRole",
    "fileReservedTime",
    "filterServerNums",
    "flushDiskType",
    "maxMessageSize",
    "messageDelayLevel",
    "msgTraceTopicName",
    "slaveReadEnable",
    "traceOn",
    "traceTopicEnable",
    "useTLS",
    "autoCreateTopicEnable",
    "autoCreateSubscriptionGroup",
    "clientCallbackExecutorThreads",
]


def settings(folder: Path, reconfigure: Callable[[StoreConfig], None] = lambda config: None) -> Settings:
    config, store, path = BrokerConfig(name="broker-a"), StoreConfig(root=folder), folder / "broker.conf"
    return Settings(config, store, path, version=DataVersion(), reconfigure=reconfigure)


def test_settings_without_effect_are_reported_or_rejected() -> None:
    """Goal: nobody believes in a setting that does nothing; one that would protect something stops the start."""
    given = {"sendMessageThreadPoolNums": "32", "warmMapedFileEnable": "false", "useEpollNativeSelector": " FALSE "}
    assert ineffective_settings(given) == ["sendMessageThreadPoolNums"]
    for key in ("enableDLegerCommitLog",):
        with pytest.raises(ConfigError, match=f"{key}=true has no effect"):
            BrokerConfig.from_java({key: "true"})


def test_keys_of_a_broker_conf_are_understood() -> None:
    config = BrokerConfig.from_java(
        {
            "brokerName": "b",
            "listenPort": " 12000 ",
            "autoCreateTopicEnable": "false",
            "namesrvAddr": "h:1;g:2, h:1;",
            "flushDiskType": "SYNC_FLUSH",
        }
    )
    assert (config.name, config.port, config.auto_create_topics) == ("b", 12000, False)
    assert config.name_server_addrs == ("h:1", "g:2")


def test_keys_that_mean_nothing_are_told_apart() -> None:
    given = {"nobodyKnows": "1", "brokerName": "b", "deleteWhen": "04", "useTLS": "true", "tls.server.mode": "x"}
    assert unknown_keys(given) == ["nobodyKnows"]


@pytest.mark.parametrize(
    "bad",
    [
        {"listenPort": "2"},
        {"listenPort": "many"},
        {"traceOn": "maybe"},
        {"brokerIP1": "0.0.0.0"},
        {"brokerId": "1"},
        {"brokerRole": "SLAVE"},
        {"defaultTopicQueueNums": "0"},
    ],
)
def test_a_bad_value_is_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        BrokerConfig.from_java(bad)


def test_the_address_for_clients_is_the_one_we_listen_at() -> None:
    assert BrokerConfig(host="127.0.0.1").ip == "127.0.0.1"
    assert BrokerConfig(host="0.0.0.0").ip not in ("", "0.0.0.0")


def test_the_text_has_every_key_that_tools_look_for(tmp_path: Path) -> None:
    shown = parse_config(settings(tmp_path).text())
    assert set(EXPORTED) <= set(shown)
    assert (shown["flushDiskType"], shown["brokerName"], shown["traceOn"]) == ("ASYNC_FLUSH", "broker-a", "true")


def test_a_change_counts_is_kept_and_is_told(tmp_path: Path) -> None:
    running, told = settings(tmp_path), []
    running.listeners.append(lambda before, after: told.append((before.perm, after.perm)))
    (tmp_path / "broker.conf").write_text("traceOn=true\n# mine\n")
    asyncio.run(running.update({"brokerPermission": "4", "fileReservedTime": "48", "nobodyKnows": "1"}, now_ms=9))
    assert running.config.perm == 4
    assert told == [(6, 4)]
    assert running.data_version == DataVersion(counter=1, timestamp_ms=9)
    kept = parse_config((tmp_path / "broker.conf").read_text())
    assert kept == {"traceOn": "true", "brokerPermission": "4", "fileReservedTime": "48"}
    assert parse_config(running.text())["fileReservedTime"] == "48"
    assert parse_settings(kept) == {"trace_on": True, "perm": 4}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"brokerName": "x"}, RequestRejected),
        ({"storePathRootDir": "/"}, RequestRejected),
        ({"traceOn": "maybe"}, ConfigError),
        ({"deleteWhen": "99"}, ConfigError),
        ({"mappedFileSizeCommitLog": "1048576", "maxMessageSize": "1000"}, RequestRejected),
        ({"brokerRole": "SLAVE"}, RequestRejected),
        ({"tls.server.keyPath": "/tmp/key"}, RequestRejected),
        ({"flushConsumerOffsetInterval": "0"}, ConfigError),
    ],
)
def test_a_bad_change_changes_nothing(tmp_path: Path, change: dict[str, str], error: type[Exception]) -> None:
    running = settings(tmp_path)
    with pytest.raises(error):
        asyncio.run(running.update({"brokerPermission": "4", **change}, now_ms=1))
    assert running.config.perm == 6
    assert not (tmp_path / "broker.conf").exists()


def test_the_store_is_told_what_changes_for_it(tmp_path: Path) -> None:
    """Goal: only when something does, and with all its settings; one that it has already is no change."""
    told: list[StoreConfig] = []
    running = settings(tmp_path, told.append)
    asyncio.run(running.update({"traceOn": "false", "mappedFileSizeCommitLog": str(1 << 30)}, now_ms=1))
    assert told == []
    asyncio.run(running.update({"flushDiskType": "SYNC_FLUSH", "maxMessageSize": "1000"}, now_ms=2))
    assert told == [StoreConfig(root=tmp_path, flush_type=FlushType.SYNC_FLUSH, message_bytes_max=1000)]
    assert parse_config(running.text())["flushDiskType"] == "SYNC_FLUSH"


def test_a_slip_of_the_pen_is_told_with_the_key_that_was_meant() -> None:
    assert describe_unknown(["fileReservedTme", "LISTENPORT", "nobodyKnows"]) == (
        "fileReservedTme (did you mean fileReservedTime?), LISTENPORT (did you mean listenPort?), nobodyKnows"
    )
