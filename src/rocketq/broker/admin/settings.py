"""Settings of a running broker: read, change and save them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rocketq.access.config import keys as access_keys
from rocketq.broker.config import (
    TLS_PREFIX,
    WITHOUT_EFFECT,
    BrokerConfig,
    BrokerRole,
    describe_unknown,
    ineffective_settings,
    parse_settings,
    store_settings,
    unknown_keys,
)
from rocketq.errors import ConfigError
from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.config_text import format_config, parse_config
from rocketq.remoting import RequestRejected
from rocketq.store import StoreConfig
from rocketq.store.disk import Disk

log = logging.getLogger(__name__)

FIXED_KEYS: Final = frozenset(
    {
        *access_keys(),
        "bindAddress",
        "brokerClusterName",
        "brokerIP1",
        "brokerIP2",
        "brokerId",
        "brokerName",
        "brokerRole",
        "enableDLegerCommitLog",
        "haControlPassword",
        "haControlStore",
        "haControlUser",
        "haLeaseMode",
        "haLeaseTimeout",
        "haLeaseTtl",
        "haListenPort",
        "haProtocol",
        "listenPort",
        "serverChannelMaxIdleTimeSeconds",
        "storePathCommitLog",
        "storePathRootDir",
    }
)
"""Settings fixed while running: identity and addresses; paths, because a client that changes a path can write any
file."""
SECRET_KEYS: Final = frozenset({"haControlPassword"})
HIDDEN: Final = "(hidden)"


@dataclass(frozen=True, slots=True)
class _Change:
    """A validated request to change settings."""

    known: dict[str, str]
    config: BrokerConfig
    store: StoreConfig


class Settings:
    """Settings of the broker and its store (applied by `reconfigure`). Changes take effect immediately or are
    rejected."""

    def __init__(
        self,
        config: BrokerConfig,
        store: StoreConfig,
        path: Path,
        *,
        version: DataVersion,
        reconfigure: Callable[[StoreConfig], None] = lambda config: None,
    ) -> None:
        self.config = config
        self.data_version = version
        self._store = store
        self._path = path
        self._reconfigure = reconfigure
        self._changing = asyncio.Lock()
        self._fixed = {
            **WITHOUT_EFFECT,
            "storePathRootDir": str(store.root),
            "storePathCommitLog": str(store.log_dir),
            "brokerConfigPath": str(path),
        }
        self.listeners: list[Callable[[BrokerConfig, BrokerConfig], None]] = []

    async def update(self, changes: Mapping[str, str], now_ms: int) -> None:
        """Apply and save all changes, or none: ConfigError for an invalid value, RequestRejected for a fixed one.

        The file is written and the store reconfigured on another thread."""
        async with self._changing:
            change = self._check(changes)
            await asyncio.to_thread(self._keep, change.known)
            if change.store != self._store:
                await asyncio.to_thread(self._reconfigure, change.store)
            before, self.config, self._store = self.config, change.config, change.store
            self.data_version = self.data_version.next(now_ms)
            for listener in self.listeners:
                listener(before, self.config)

    def become(self, role: BrokerRole, broker_id: int) -> None:
        """Apply a role change of a fenced replica; it is not saved."""
        before, self.config = self.config, replace(self.config, role=role, broker_id=broker_id)
        for listener in self.listeners:
            listener(before, self.config)

    def text(self) -> str:
        told = store_settings(self._store) | self._fixed | self.config.to_java()
        hidden = {key: HIDDEN for key in SECRET_KEYS if told[key]}
        return format_config(dict(sorted((told | hidden).items())))

    def _check(self, changes: Mapping[str, str]) -> _Change:
        if unknown := unknown_keys(changes):
            log.warning("unknown settings are ignored: %s", describe_unknown(unknown))
        known = {key: text for key, text in changes.items() if key not in unknown}
        _refuse_fixed({key for key in known if key in FIXED_KEYS or key.startswith(TLS_PREFIX)})
        if ineffective := ineffective_settings(known):
            raise ConfigError(f"{', '.join(ineffective)}: no effect on this broker, only the default is accepted")
        config, store = replace(self.config, **parse_settings(known)), self._store.with_java(known)
        _refuse_fixed({key for key, live in self._store.changed_to(store).items() if not live})
        return _Change(known, config, store)

    def _keep(self, known: Mapping[str, str]) -> None:
        kept = parse_config(self._path.read_text(encoding="utf-8")) if self._path.exists() else {}
        Disk().replace(self._path, format_config(kept | dict(known)).encode())


def _refuse_fixed(keys: set[str]) -> None:
    if keys:
        remark = f"{', '.join(sorted(keys))} cannot be changed while running: change the config file and restart"
        raise RequestRejected(ResponseCode.NO_PERMISSION, remark)
