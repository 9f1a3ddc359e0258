"""Config files: Apache's `key=value` lines, or TOML when the name ends so."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from rocketq.errors import ConfigError, RemoteProtocolError
from rocketq.protocol.config_text import parse_config


def read_settings(path: Path) -> dict[str, str]:
    """Every setting as text; ConfigError when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            return {key: _to_text(key, value) for key, value in tomllib.loads(text).items()}
        return parse_config(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RemoteProtocolError) as error:
        raise ConfigError(f"{path}: {error}") from None


def _to_text(key: str, value: Any) -> str:
    if isinstance(value, (dict, list)):
        raise ConfigError(f"{key}: a single value was expected")
    return str(value).lower() if isinstance(value, bool) else str(value)
