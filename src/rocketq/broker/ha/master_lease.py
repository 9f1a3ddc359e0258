"""Whether a broker may act as master by itself: deliver, check transactions, delete, grant locks."""

from __future__ import annotations

import logging
from typing import Protocol

from rocketq.broker.admin.settings import Settings
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)


class MasterCandidate(Protocol):
    """A broker among replicas, which may be elected."""

    @property
    def is_leading(self) -> bool: ...
    def has_lease(self, now_ms: int) -> bool: ...


class MasterLease:
    """Always valid, unless the broker is one of several replicas: then in both lease modes only while it leads and its
    lease lasts."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._candidate: MasterCandidate | None = None
        self._was_valid = True

    def depend_on(self, candidate: MasterCandidate) -> None:
        self._candidate = candidate

    def is_valid(self) -> bool:
        if self._candidate is None:
            return True
        is_leading = self._candidate.is_leading
        is_valid = is_leading and self._candidate.has_lease(self._clock.monotonic_ms())
        if is_leading and is_valid != self._was_valid:
            self._was_valid = is_valid
            name = self._settings.config.name
            if is_valid:
                log.info("the lease of broker %s is valid again: deliveries, checks and deletion go on", name)
            else:
                log.warning("broker %s has no valid lease: deliveries, checks, deletion and locks wait", name)
        return is_valid
