"""Settings in Apache's keys, read, shown and changed while running."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.broker.config import BrokerConfig, parse_settings, unknown_keys
from rocketq.broker.settings import Settings
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.config_text import parse_config
from rocketq.remoting import Refusal
from rocketq.store import StoreConfig

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


def settings(folder: Path) -> Settings:
    return Settings(
        BrokerConfig(name="broker-a"), StoreConfig(root=folder), folder / "broker.conf", version=DataVersion()
    )


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
    running.update({"brokerPermission": "4", "fileReservedTime": "48", "nobodyKnows": "1"}, now_ms=9)
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
        ({"brokerName": "x"}, Refusal),
        ({"storePathRootDir": "/"}, Refusal),
        ({"traceOn": "maybe"}, ConfigError),
        ({"deleteWhen": "99"}, ConfigError),
    ],
)
def test_a_bad_change_changes_nothing(tmp_path: Path, change: dict[str, str], error: type[Exception]) -> None:
    running = settings(tmp_path)
    with pytest.raises(error):
        running.update({"brokerPermission": "4", **change}, now_ms=1)
    assert running.config.perm == 6
    assert not (tmp_path / "broker.conf").exists()
