"""Where the NameServers are, as users write it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from rocketq.errors import ConfigError
from rocketq.remoting.address import split_addr

VARIABLE: Final = "NAMESRV_ADDR"
_SCHEME: Final = "http://"


def parse_name_servers(addrs: str | Sequence[str] | None) -> tuple[str, ...]:
    """`host:port;host:port` or one text each, else what the environment says; ConfigError where that is no address."""
    given = os.environ.get(VARIABLE, "") if addrs is None else addrs
    texts = given.replace(",", ";").split(";") if isinstance(given, str) else given
    found = [text.strip().removeprefix(_SCHEME) for text in texts if text.strip()]
    for addr in found:
        split_addr(addr)
    if not found:
        raise ConfigError(f"no NameServer was given: name one as host:port, or set {VARIABLE}")
    return tuple(dict.fromkeys(found))
