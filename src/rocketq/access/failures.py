"""Failed signatures by source: after too many within a minute a source is blocked for a while. Pure.

A source that signs right in between is not counted anew, and one is only blocked for what fails: requests whose
signatures are right are served all the time where the kernel verifies them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

WINDOW_MS: Final = 60_000
_SOURCES_MAX: Final = 10_000


class FailureLimits:
    """`failures_max` 0 blocks nobody."""

    def __init__(self, failures_max: int, block_ms: int) -> None:
        self._failures_max = failures_max
        self._block_ms = block_ms
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._blocked_until_ms: dict[str, int] = {}

    def failed(self, source: str, now_ms: int) -> bool:
        """Count a failure; whether the source is blocked from now on."""
        if not self._failures_max:
            return False
        start_ms, count = self._counts.pop(source, (now_ms, 0))
        if now_ms - start_ms >= WINDOW_MS:
            start_ms, count = now_ms, 0
        self._counts[source] = start_ms, count + 1
        if len(self._counts) > _SOURCES_MAX:
            self._counts.popitem(last=False)
        if count + 1 <= self._failures_max:
            return False
        self._counts.pop(source)
        self._blocked_until_ms[source] = now_ms + self._block_ms
        return True

    def blocked_ms(self, source: str, now_ms: int) -> int:
        """For how long a source is blocked yet; 0: it is not."""
        if not self._blocked_until_ms:
            return 0
        until_ms = self._blocked_until_ms.get(source, 0)
        if until_ms <= now_ms:
            self._blocked_until_ms.pop(source, None)
            return 0
        return until_ms - now_ms


class FreshSignatures:
    """Signed times and nonces, each accepted once within its time."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._seen: OrderedDict[tuple[str, str], int] = OrderedDict()

    def fault(self, user: str, signed_at: str | None, nonce: str | None, now_ms: int) -> str | None:
        """Why a signature is not fresh, or None; then its nonce is used up."""
        if not signed_at or not signed_at.isdecimal() or not nonce or len(nonce) > 64:
            return "the signature carries no time and nonce"
        age_ms = now_ms - int(signed_at[:15])
        if abs(age_ms) > self._window_ms:
            return f"the signature is {age_ms} ms old, {self._window_ms} ms are allowed"
        while self._seen and next(iter(self._seen.values())) <= now_ms:
            self._seen.popitem(last=False)
        if (user, nonce) in self._seen:
            return "the signature was used before"
        self._seen[user, nonce] = now_ms + 2 * self._window_ms
        return None
