"""What the compiled fast path calls of its surroundings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Lock(Protocol):
    def acquire(self) -> bool: ...

    def release(self) -> None: ...


class StorePort(Protocol):
    """The store that a fast path appends to."""

    @property
    def lock(self) -> Lock: ...

    @property
    def stored(self) -> Callable[[], None]: ...

    @property
    def append_listeners(self) -> list[Callable[[], None]]: ...


class AnswerSlots(Protocol):
    """Limits how many more answers may wait."""

    @property
    def free_slots(self) -> int: ...


class ConnectionOwner(Protocol):
    """The connection that a FastConnection stands in for as its transport's protocol."""

    @property
    def writes_paused(self) -> bool: ...

    def data_received(self, data: bytes) -> None: ...

    def write(self, data: bytes) -> None: ...

    def fail(self) -> None: ...

    def eof_received(self) -> bool | None: ...

    def connection_lost(self, error: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def note_unsent(self) -> None: ...
