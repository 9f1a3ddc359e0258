"""Reading a stretch of one queue with several pulls in flight: which to send, and in which order their answers count.

The stretch is cut into steps of as many messages as one answer can hold, by the size messages have turned out to have.
An answer that ends before its step does is followed by another pull for the rest. What comes out is in queue order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sized
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

FIRST_COUNT: Final = 256
FILL: Final = 0.9
"""Of the bytes of an answer, aimed at: sizes vary, and an overfull answer costs a second pull."""


BodyT = TypeVar("BodyT", bound=Sized)
"""What an answer brings; its length is that of its records."""


@dataclass(slots=True, eq=False)
class Step(Generic[BodyT]):
    """A part [low, high) of the stretch; `low` moves as answers come."""

    low: int
    high: int
    is_sent: bool = False
    bodies: list[BodyT] = field(default_factory=list)


class ReadAhead(Generic[BodyT]):
    """Pure: it is told of answers, and says what to pull next and what is ready."""

    def __init__(self, low: int, high: int, *, depth: int, count_max: int, bytes_max: int) -> None:
        self._next = low
        self._high = high
        self._depth = depth
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._count = min(FIRST_COUNT, count_max)
        self._steps: deque[Step[BodyT]] = deque()
        self.handed_to = low
        """Everything before it was handed out by ready()."""

    @property
    def is_done(self) -> bool:
        return not self._steps and self._next >= self._high

    def due(self) -> list[Step[BodyT]]:
        """Steps to pull now: each at its `low`, at most `high - low` messages."""
        due = [step for step in self._steps if not step.is_sent]
        while len(self._steps) < self._depth and self._next < self._high:
            step = Step[BodyT](self._next, min(self._next + self._count, self._high))
            self._next = step.high
            self._steps.append(step)
            due.append(step)
        for step in due:
            step.is_sent = True
        return due

    def is_first(self, step: Step[BodyT]) -> bool:
        """Whether all before this step's `low` was handed out: the answer to it may be passed on at once."""
        return self._steps[0] is step and not step.bodies

    def answered(self, step: Step[BodyT], body: BodyT, next_offset: int, *, passed_bytes: int = 0) -> None:
        """The answer to a step's pull: messages up to `next_offset`. It has no body here if so many bytes of it were
        passed on already."""
        count, size_bytes = next_offset - step.low, len(body) or passed_bytes
        if count > 0 and size_bytes:
            self._learn(count, size_bytes, step.high - step.low)
        if body:
            step.bodies.append(body)
        step.low = max(step.low, next_offset)
        if self._depth == 1:
            self._next = max(self._next, next_offset)  # a filtered answer may pass its step: nothing lies behind it yet
        step.is_sent = step.low >= step.high

    def failed(self, step: Step[BodyT]) -> None:
        """No answer came: it is due again."""
        step.is_sent = False

    def ready(self) -> list[BodyT]:
        """The bodies that lie next in queue order, each handed out once."""
        bodies: list[BodyT] = []
        while self._steps:
            step = self._steps[0]
            bodies += step.bodies
            step.bodies.clear()
            self.handed_to = step.low
            if step.low < step.high:
                break
            self._steps.popleft()
        return bodies

    def _learn(self, count: int, size_bytes: int, asked: int) -> None:
        fitting = max(1, int(self._bytes_max * FILL / (size_bytes / count)))
        if count < asked and size_bytes * 2 < self._bytes_max:
            fitting = min(fitting, count)  # the broker has a smaller limit than we asked for
        self._count = max(1, min(fitting, self._count_max))
