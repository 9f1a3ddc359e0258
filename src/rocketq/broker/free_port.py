"""Finding a port that is free together with the neighbours a broker uses."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from typing import Final

from rocketq.errors import UnreachableError

VIP_STEP: Final = -2
REPLICATION_STEP: Final = 1
_NEIGHBOURS: Final = (0, VIP_STEP, REPLICATION_STEP)
_LOW, _HIGH, _TRIES = 20_000, 32_000, 500


def pick_port(host: str) -> int:
    """Below the range that systems hand out to clients, so that no connection takes it meanwhile."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for _ in range(_TRIES):
        port = random.randrange(_LOW, _HIGH)
        with ExitStack() as stack:
            try:
                for step in _NEIGHBOURS:
                    stack.enter_context(socket.socket(family)).bind((host, port + step))
            except OSError:
                continue
            return port
    raise UnreachableError(host, "no free port was found")
