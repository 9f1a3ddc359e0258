"""Settings of a NameServer, with Apache's key for each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from rocketq.access.config import AccessConfig
from rocketq.access.config import keys as access_keys
from rocketq.errors import ConfigError
from rocketq.nameserver.kv_config import KvLimits
from rocketq.protocol.config_text import parse_value, suggest_keys
from rocketq.protocol.metrics_config import exporter_type
from rocketq.remoting.listener_settings import ListenerSettings

TLS_PREFIX: Final = "tls."
_KV_PATH = Path.home() / "namesrv" / "kvConfig.json"
_CONFIG_PATH = Path.home() / "namesrv" / "namesrv.properties"


def option(key: str, default: Any, about: str) -> Any:
    """A field with the name `key` in Apache's namesrv.conf; `about` describes it in the settings reference."""
    return field(default=default, metadata={"key": key, "about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerConfig(ListenerSettings):
    host: str = option("bindAddress", "127.0.0.1", "Address the NameServer listens on.")
    port: int = option("listenPort", 9876, "Port the NameServer listens on. 0 picks a free one.")
    kv_path: Path = option("kvConfigPath", _KV_PATH, "File of the KV configuration.")
    config_path: Path = option("configStorePath", _CONFIG_PATH, "File in which changed settings are saved.")
    order_enabled: bool = option(
        "orderMessageEnable", False, "Answer the order configuration of topics with their routes."
    )
    idle_seconds: int = option("serverChannelMaxIdleTimeSeconds", 120, "Idle time after which a connection is closed.")
    access: AccessConfig = field(default_factory=AccessConfig)
    """Settings of access control, with keys of their own."""
    scan_interval_ms: int = option(
        "scanNotActiveBrokerInterval", 10_000, "Time between two searches for brokers that no longer register."
    )
    metrics_exporter: str = option(
        "metricsExporterType", "DISABLE", "DISABLE, or PROM: metrics and health pages over HTTP. 0 and 2 are accepted."
    )
    metrics_port: int = option(
        "metricsPromExporterPort", 5556, "Port of /metrics and health pages; 0 picks a free one."
    )
    metrics_host: str = option(
        "metricsPromExporterHost", "", "Address of /metrics and health pages. Empty: `bindAddress`."
    )

    kv_value_bytes_max: int = option(
        "kvConfigValueBytesMax", 64 << 10, "Longest value of the KV configuration. Namespaces and keys: 255 characters."
    )
    kv_count_max: int = option("kvConfigCountMax", 10_000, "Keys of the KV configuration in all namespaces.")
    kv_bytes_max: int = option("kvConfigBytesMax", 4 << 20, "Size of the KV configuration in all namespaces.")

    cluster_test: bool = option("clusterTest", False, "Shown to tools only.")

    def __post_init__(self) -> None:
        self.check_limits()
        for valid, what in (
            (0 <= self.port <= 0xFFFF, f"listenPort {self.port} is outside 0..65535"),
            (self.idle_seconds > 0, "serverChannelMaxIdleTimeSeconds must be above 0"),
            (self.scan_interval_ms > 0, "scanNotActiveBrokerInterval must be above 0"),
            (self.kv_value_bytes_max >= 1024, "kvConfigValueBytesMax must be at least 1024"),
            (self.kv_count_max >= 100, "kvConfigCountMax must be at least 100"),
            (self.kv_bytes_max >= 64 << 10, "kvConfigBytesMax must be at least 65536"),
        ):
            if not valid:
                raise ConfigError(what)
        exporter_type(self.metrics_exporter)

    @classmethod
    def from_java(cls, settings: Mapping[str, str], **given: Any) -> NameServerConfig:
        """From Apache's keys; unknown ones are ignored (see `unknown_keys`). `given` overrides."""
        return cls(**({"access": AccessConfig.from_java(settings)} | parse_settings(settings) | given))

    @property
    def kv_limits(self) -> KvLimits:
        return KvLimits(self.kv_value_bytes_max, self.kv_count_max, self.kv_bytes_max)

    def to_java(self) -> dict[str, str]:
        """All keys with their values as text."""
        own = {key: _to_text(getattr(self, item.name)) for key, item in _fields_by_key().items()}
        return own | self.access.to_java()


def unknown_keys(settings: Mapping[str, str]) -> list[str]:
    """Keys that the NameServer does not support."""
    known = {*_fields_by_key(), *access_keys()}
    return [key for key in settings if key not in known and not key.startswith(TLS_PREFIX)]


def describe_unknown(keys: Iterable[str]) -> str:
    """Unknown keys as text, each with a similar known one."""
    return suggest_keys(keys, _fields_by_key())


def parse_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Known settings by field name; ConfigError names an invalid one."""
    known = _fields_by_key()
    return {
        known[key].name: parse_value(key, text, known[key].default) for key, text in settings.items() if key in known
    }


def _fields_by_key() -> dict[str, Any]:
    return {item.metadata["key"]: item for item in fields(NameServerConfig) if "key" in item.metadata}


def _to_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
