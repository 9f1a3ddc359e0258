"""How many connections a server takes."""

from __future__ import annotations

import logging

from rocketq.runtime.file_limit import file_limit

log = logging.getLogger(__name__)


class ConnectionRoom:
    """Keeps strangers from taking every file that the process may open: a store needs some to go on."""

    def __init__(self, connections_max: int = 0, *, what: str = "connections") -> None:
        self._connections_max = connections_max or file_limit() // 2
        self._what = what
        self._told = False

    def is_for(self, count: int) -> bool:
        """Whether so many may be, the new one among them. One line is logged when there begin to be too many."""
        if count <= self._connections_max:
            self._told = False
            return True
        if not self._told:
            self._told = True
            told = "new %s are dropped: there are %d, which is all that may be"
            log.warning(told, self._what, self._connections_max)
        return False
