"""How rows come from Spark's Python workers on this machine."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Final

_NAME_BYTES: Final = 48
"""Of a socket in its folder: a UUID with a little around it."""
_PATH_BYTES_MAX: Final = 103
"""On macOS; Linux has four more."""


def worker_conf(folder: Path) -> dict[str, str]:
    """Use Unix sockets, which save a sixth of all CPU time compared with TCP. `folder` must be private to this user,
    because the sockets do not authenticate. Not used if the platform lacks them or the path is too long.
    """
    if not hasattr(socket, "AF_UNIX") or len(os.fsencode(folder)) + _NAME_BYTES > _PATH_BYTES_MAX:
        return {}
    return {
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(folder),
    }
