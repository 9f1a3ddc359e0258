"""Who waits for the disk: appends that want to be durable, released by log position."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable


class FlushGate:
    """Positions reached, and those waiting for one. Threads wait(); event loops hold() a callback.

    A callback is called on the thread that releases it and gets True when its position was reached, False when the
    gate was shut because it never will be.
    """

    def __init__(self, position: int = 0) -> None:
        self._changed = threading.Condition()
        self._position = position
        self._shut = False
        self._held: list[tuple[int, int, Callable[[bool], None]]] = []
        self._order = itertools.count()

    @property
    def position(self) -> int:
        return self._position

    def wait(self, position: int, timeout_ms: int) -> bool:
        """True when the position was reached in time."""
        with self._changed:
            self._changed.wait_for(lambda: self._position >= position or self._shut, timeout_ms / 1000)
            return self._position >= position

    def hold(self, position: int, callback: Callable[[bool], None]) -> None:
        """Call back once the position is reached; at once when it is already."""
        with self._changed:
            if self._position < position and not self._shut:
                heapq.heappush(self._held, (position, next(self._order), callback))
                return
            reached = self._position >= position
        callback(reached)

    def release(self, position: int) -> None:
        """This far it is safe."""
        due = []
        with self._changed:
            self._position = max(self._position, position)
            while self._held and self._held[0][0] <= self._position:
                due.append(heapq.heappop(self._held)[2])
            self._changed.notify_all()
        for callback in due:
            callback(True)

    def shut(self) -> None:
        """Nothing further will be reached: everybody goes."""
        with self._changed:
            self._shut = True
            due = [callback for _, _, callback in self._held]
            self._held.clear()
            self._changed.notify_all()
        for callback in due:
            callback(False)


class ReplicaGate(FlushGate):
    """Positions that replicas have reached, with what those who answer need to know about waiting for them."""

    def __init__(self, is_available: Callable[[int], bool], timeout_ms: Callable[[], int]) -> None:
        super().__init__(0)
        self.is_available = is_available
        """Whether there is anybody who may reach this position in time."""
        self._timeout_ms = timeout_ms

    @property
    def timeout_ms(self) -> int:
        return self._timeout_ms()
