"""Config files: Apache's `key=value` lines, or TOML when the name ends so."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rocketq.errors import ConfigError, RemoteProtocolError
from rocketq.protocol.config_text import parse_config


def read_settings(path: Path) -> dict[str, str]:
    """Every setting as text; ConfigError when the file cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        return _read_toml(text) if path.suffix == ".toml" else parse_config(text)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, RemoteProtocolError) as error:  # no UTF-8, no TOML
        raise ConfigError(f"{path}: {error}") from None


def _read_toml(text: str) -> dict[str, str]:
    import tomllib  # noqa: PLC0415 - as long to load as a small broker takes to open its store, for few files

    return {key: _to_text(key, value) for key, value in tomllib.loads(text).items()}


def _to_text(key: str, value: Any) -> str:
    if isinstance(value, (dict, list)):
        raise ConfigError(f"{key}: a single value was expected")
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse_changes(changes: Iterable[str]) -> dict[str, str]:
    """`key=value` texts as settings."""
    settings = {}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{change!r} is not KEY=VALUE")
        settings[key.strip()] = value.strip()
    return settings
