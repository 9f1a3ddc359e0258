"""The results of many messages sent by one call, made when they are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from rocketq.client.core.send_flow import Accepted, SendResult, SendStatus, status_of
from rocketq.kernel.send_batch import SendBatch
from rocketq.protocol.bodies.queues import MessageQueue


@dataclass(slots=True)
class BatchPart:
    """One batch that is stored: `queue` as users know it."""

    batch: SendBatch
    accepted: Accepted
    queue: MessageQueue

    def __len__(self) -> int:
        return len(self.batch)

    def results(self) -> list[SendResult]:
        fields = self.accepted.fields
        found: list[SendResult] = self.batch.results(
            SendResult,
            status_of(self.accepted),
            fields["msgId"],
            self.queue,
            self.accepted.queue_offset,
            fields.get("MSG_REGION"),
            fields.get("TRACE_ON") != "false",
        )
        return found


class SendManyResult(Sequence[SendResult]):
    """A SendResult for each message, in the order of the bodies."""

    def __init__(self, parts: Sequence[BatchPart | SendResult]) -> None:
        self._parts = parts
        self._results: list[SendResult] | None = None

    @property
    def is_ok(self) -> bool:
        """Whether every message has the status SEND_OK."""
        return all(
            (part.status if isinstance(part, SendResult) else status_of(part.accepted)) is SendStatus.SEND_OK
            for part in self._parts
        )

    def __len__(self) -> int:
        return sum(1 if isinstance(part, SendResult) else len(part) for part in self._parts)

    def __iter__(self) -> Iterator[SendResult]:
        return iter(self._all())

    @overload
    def __getitem__(self, index: int) -> SendResult: ...

    @overload
    def __getitem__(self, index: slice) -> list[SendResult]: ...

    def __getitem__(self, index: int | slice) -> SendResult | list[SendResult]:
        return self._all()[index]

    def __repr__(self) -> str:
        return f"SendManyResult({len(self)} messages)"

    def _all(self) -> list[SendResult]:
        if self._results is None:
            self._results = [
                result
                for part in self._parts
                for result in ([part] if isinstance(part, SendResult) else part.results())
            ]
        return self._results
