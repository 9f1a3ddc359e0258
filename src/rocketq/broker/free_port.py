"""Picks a port that is free together with the neighbouring ports a broker uses."""

from __future__ import annotations

import os
import random
import socket
from collections import deque
from contextlib import ExitStack
from typing import Final

from rocketq.errors import ConfigError, UnreachableError

VIP_STEP: Final = -2
REPLICATION_STEP: Final = 1
_NEIGHBOURS: Final = (0, VIP_STEP, REPLICATION_STEP)
_TRIES: Final = 500
RANGE_VARIABLE: Final = "ROCKETQ_FREE_PORTS"
"""Environment variable with the port range, as LOW-HIGH."""
_RANGE: Final = "20000-32000"
"""Below the ephemeral range, so that outgoing connections do not take a picked port."""
_given: deque[int] = deque(maxlen=64)
"""Recently picked ports, which may not be bound yet; they are not picked again."""


def pick_port(host: str) -> int:
    """A port that is free with its neighbours, all of them in the range."""
    low, high = _range(os.environ.get(RANGE_VARIABLE) or _RANGE)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(_TRIES):
        port = random.randrange(low - VIP_STEP, high - REPLICATION_STEP)
        if any(abs(port - other) <= REPLICATION_STEP - VIP_STEP for other in _given):
            continue
        with ExitStack() as stack:
            try:
                for step in _NEIGHBOURS:
                    stack.enter_context(socket.socket(family)).bind((host, port + step))
            except OSError:
                continue
            _given.append(port)
            return port
    raise UnreachableError(host, "no free port was found")


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    if not (low.isdecimal() and high.isdecimal() and 1024 <= int(low) <= int(high) - 10 <= 65_525):
        raise ConfigError(f"{RANGE_VARIABLE}={text!r} is not a range of at least ten ports, like {_RANGE}")
    return int(low), int(high)
