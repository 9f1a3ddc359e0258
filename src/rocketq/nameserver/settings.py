"""The config of a running NameServer: read, changed and kept on request of operators."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from rocketq.nameserver.config import NameServerConfig, describe_unknown, parse_settings, unknown_keys
from rocketq.nameserver.state_file import read_text, write_state
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.config_text import format_config, parse_config
from rocketq.remoting import Refusal

log = logging.getLogger(__name__)

FIXED_KEYS: Final = frozenset({"kvConfigPath", "configStorePath"})
"""Whoever could change these could write any file."""


class Settings:
    """`order_enabled` counts at once, everything else at the next start. Changes wait for the disk: other threads."""

    def __init__(self, config: NameServerConfig) -> None:
        self.config = config
        self._changing = threading.Lock()

    def update(self, changes: Mapping[str, str]) -> None:
        """Take and keep the known settings; ConfigError or Refusal when one is bad or fixed, and then none is taken."""
        if fixed := FIXED_KEYS & changes.keys():
            raise Refusal(ResponseCode.NO_PERMISSION, f"{', '.join(sorted(fixed))} cannot be changed while running")
        if unknown := unknown_keys(changes):
            log.warning("unknown settings are ignored: %s", describe_unknown(unknown))
        known = {key: text for key, text in changes.items() if key not in unknown}
        with self._changing:
            config = replace(self.config, **parse_settings(known))
            kept = parse_config(read_text(config.config_path) or "")
            write_state(config.config_path, format_config(kept | known).encode())
            self.config = config

    def listens_at(self, port: int) -> None:
        """The port in use, for tools; the configured one may be 0."""
        self.config = replace(self.config, port=port)

    def text(self) -> str:
        return format_config(self.config.to_java())
