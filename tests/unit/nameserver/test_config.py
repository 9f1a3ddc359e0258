from __future__ import annotations

from pathlib import Path

import pytest

from rocketq.errors import ConfigError
from rocketq.nameserver.config import NameServerConfig, unknown_keys
from rocketq.nameserver.settings import Settings
from rocketq.remoting import RequestRejected


def test_apaches_keys_are_read_and_written() -> None:
    config = NameServerConfig.from_java({"listenPort": "0", "orderMessageEnable": "TRUE", "other": "x"}, host="::1")
    assert (config.port, config.order_enabled, config.host) == (0, True, "::1")
    assert NameServerConfig.from_java(config.to_java()) == config
    assert unknown_keys({"listenPort": "1", "tls.server.mode": "disabled", "other": "x"}) == ["other"]


@pytest.mark.parametrize(
    "bad",
    [{"listenPort": "x"}, {"listenPort": "70000"}, {"orderMessageEnable": "1"}, {"scanNotActiveBrokerInterval": "0"}],
)
def test_a_bad_setting_is_named(bad: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        NameServerConfig.from_java(bad)


def test_a_change_counts_at_once_and_is_kept_beside_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    path.write_text("listenPort=19876\nmine=kept\n")
    settings = Settings(NameServerConfig(config_path=path, port=19876))
    settings.update({"orderMessageEnable": "true", "unknown": "dropped"})
    assert settings.config.order_enabled
    assert "orderMessageEnable=true\n" in settings.text()
    assert path.read_text() == "listenPort=19876\nmine=kept\norderMessageEnable=true\n"


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"orderMessageEnable": "true", "kvConfigPath": "/x"}, RequestRejected), ({"listenPort": "x"}, ConfigError)],
)
def test_a_bad_change_is_refused_whole(tmp_path: Path, changes: dict[str, str], error: type[Exception]) -> None:
    settings = Settings(NameServerConfig(config_path=tmp_path / "namesrv.conf"))
    with pytest.raises(error):
        settings.update(changes)
    assert not settings.config.order_enabled
    assert not (tmp_path / "namesrv.conf").exists()


def test_the_list_has_the_keys_that_apaches_tools_know() -> None:
    shown = NameServerConfig().to_java()
    assert shown["clusterTest"] == "false"
    assert "rocketmqHome" in shown
