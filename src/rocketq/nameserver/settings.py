"""Settings of a running NameServer: read and changed by operators, saved to a file."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rocketq.access.config import keys as access_keys
from rocketq.nameserver.config import NameServerConfig, describe_unknown, parse_settings, unknown_keys
from rocketq.nameserver.state_file import read_text, write_state
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.config_text import format_config, parse_config
from rocketq.remoting import RequestRejected

log = logging.getLogger(__name__)

FIXED_KEYS: Final = frozenset({"kvConfigPath", "configStorePath", *access_keys()})
"""Changing these by request would allow writing any file."""


class Settings:
    """`order_enabled` takes effect immediately, other settings at the next start. `update` blocks on disk writes."""

    def __init__(self, config: NameServerConfig) -> None:
        self.config = config
        self._changing = threading.Lock()

    def update(self, changes: Mapping[str, str]) -> None:
        """Apply and save the known settings; ConfigError or RequestRejected, and no change, when one is invalid."""
        same = self.config.access.to_java().items()
        changes = {key: text for key, text in changes.items() if (key, text) not in same}
        if fixed := FIXED_KEYS & changes.keys():
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, f"{', '.join(sorted(fixed))} cannot be changed while running"
            )
        if unknown := unknown_keys(changes):
            log.warning("ignoring unknown settings: %s", describe_unknown(unknown))
        known = {key: text for key, text in changes.items() if key not in unknown}
        with self._changing:
            config = replace(self.config, **parse_settings(known))
            kept = parse_config(read_text(config.config_path) or "")
            write_state(config.config_path, format_config(kept | known).encode())
            self.config = config

    def set_port(self, port: int) -> None:
        """Set the port in use; the configured one may be 0."""
        self.config = replace(self.config, port=port)

    def text(self) -> str:
        return format_config(self.config.to_java())
