"""The settings of a running broker: read, changed and kept on request of operators."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from rocketq.broker.config import WITHOUT_EFFECT, BrokerConfig, parse_settings, store_keys, store_settings, unknown_keys
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.config_text import format_config, parse_config
from rocketq.remoting import Refusal
from rocketq.store import StoreConfig
from rocketq.store.disk import Disk

log = logging.getLogger(__name__)

FIXED_KEYS: Final = frozenset(
    {
        "bindAddress",
        "brokerClusterName",
        "brokerIP1",
        "brokerId",
        "brokerName",
        "listenPort",
        "storePathCommitLog",
        "storePathRootDir",
    }
)
"""Who and where a broker is cannot change under it; and whoever could change a path could write any file."""


class Settings:
    """A broker's own settings count at once, its store's at the next start."""

    def __init__(self, config: BrokerConfig, store: StoreConfig, path: Path, *, version: DataVersion) -> None:
        self.config = config
        self.data_version = version
        self._path = path
        self._shown = {
            **WITHOUT_EFFECT,
            **store_settings(store),
            "storePathRootDir": str(store.root),
            "storePathCommitLog": str(store.log_dir),
            "haListenPort": str(config.port + 1),
            "brokerConfigPath": str(path),
        }
        self.listeners: list[Callable[[BrokerConfig, BrokerConfig], None]] = []

    def update(self, changes: Mapping[str, str], now_ms: int) -> None:
        """Take and keep the known ones; ConfigError or Refusal when one is bad or fixed, and then none is taken."""
        if fixed := FIXED_KEYS & changes.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, f"{', '.join(sorted(fixed))} cannot be changed while running")
        if unknown := unknown_keys(changes):
            log.warning("unknown settings are ignored: %s", ", ".join(unknown))
        known = {key: text for key, text in changes.items() if key not in unknown}
        before, config = self.config, replace(self.config, **parse_settings(known))
        of_store = {key: text for key, text in known.items() if key in store_keys()}
        StoreConfig.from_java(of_store, root=Path())  # a bad value is refused now, not at the next start
        self._keep(known)
        self.config = config
        self._shown |= of_store
        self.data_version = self.data_version.next(now_ms)
        for listener in self.listeners:
            listener(before, config)

    def text(self) -> str:
        return format_config(dict(sorted((self._shown | self.config.to_java()).items())))

    def _keep(self, known: Mapping[str, str]) -> None:
        kept = parse_config(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        Disk().replace(self._path, format_config(kept | dict(known)).encode())
