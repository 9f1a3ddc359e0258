"""Values of Apache's settings for metrics."""

from __future__ import annotations

import enum
import re
from typing import Final

from rocketq.errors import ConfigError

_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class ExporterType(enum.Enum):
    DISABLE = 0
    PROM = 2


def exporter_type(text: str) -> ExporterType:
    """A value of metricsExporterType, by name or number; ConfigError for others."""
    wanted = text.strip().upper()
    for each in ExporterType:
        if wanted in (each.name, str(each.value)):
            return each
    raise ConfigError(f"metricsExporterType={text} is not supported: DISABLE (0) or PROM (2) is allowed")


def parse_labels(text: str) -> dict[str, str]:
    """`name:value` pairs separated by commas; ConfigError when one is malformed."""
    labels = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, colon, value = pair.partition(":")
        if not colon or not _LABEL.fullmatch(name.strip()):
            raise ConfigError(f"metricsLabel: {pair!r} is not of the form name:value")
        labels[name.strip()] = value.strip()
    return labels
