"""Exactly once: tasks send invisible half messages; the driver selects one attempt of each and commits it.

| crash | after the restart Spark runs the batch again, and |
|---|---|
| in a task, before any manifest | its half messages are in no manifest: brokers give them up |
| after the manifest, among the commits | the manifest's are committed again, which changes nothing where it was done |
| after the commits, before Spark notes the batch | the manifest is found; the new attempt's are rolled back |

This needs brokers that decide a half message once: a repeated commit stores nothing.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from rocketq.client.blocking import BlockingClient
from rocketq.client.blocking.sender import HalfHandle
from rocketq.client.core.messages import half_properties
from rocketq.client.core.send_flow import Accepted
from rocketq.errors import RocketQError
from rocketq.model import decode_message_id
from rocketq.protocol.bodies.queues import KeyValues
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.failures import AccessDeniedError
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.names import SETTLES_ONCE, Property
from rocketq.protocol.properties import encode_properties
from rocketq.spark.errors import SparkError
from rocketq.spark.manifest import Manifest, Manifests, describe_handles
from rocketq.spark.sink_options import SinkOptions
from rocketq.spark.writer import TaskId, TaskWriter

log = logging.getLogger(__name__)


class Ends(Protocol):
    def end_all(
        self, group: str, handles: Iterable[HalfHandle], state: TransactionState
    ) -> dict[HalfHandle, RocketQError]: ...


@dataclass(slots=True)
class Halves:
    """The half messages of a task, small enough to travel to the driver: pairs of offsets by broker."""

    by_broker: dict[str, array[int]] = field(default_factory=dict)

    def add(self, handle: HalfHandle) -> None:
        offsets = self.by_broker.setdefault(handle.broker_name, array("q"))
        offsets.append(handle.half_queue_offset)
        offsets.append(handle.half_log_offset)

    def handles(self) -> list[HalfHandle]:
        return [
            HalfHandle(broker, offsets[at], offsets[at + 1])
            for broker, offsets in self.by_broker.items()
            for at in range(0, len(offsets), 2)
        ]

    def __len__(self) -> int:
        return sum(map(len, self.by_broker.values())) // 2


# On executors


class HalfWriter(TaskWriter):
    """Sends the rows of one task as half messages and remembers where they lie."""

    def __init__(self, client: BlockingClient, options: SinkOptions, task: TaskId) -> None:
        super().__init__(client, options, task, half=half_constant(options))
        self.halves = Halves()
        self._client = client
        self._asked: set[str] = set()

    def before(self, topic: str) -> None:
        """Nothing goes to a broker that would deliver a message twice when it is committed twice."""
        for name, addr in self.sender.masters(topic).items():
            if addr not in self._asked:
                require_settles_once(self._client, name, addr)
                self._asked.add(addr)

    def stored(self, answer: Accepted) -> None:
        try:
            _, log_offset = decode_message_id(answer.fields["msgId"])
        except ValueError as error:
            raise SparkError(f"{answer.queue.broker_name} does not say where a half message lies: {error}") from None
        self.halves.add(HalfHandle(answer.queue.broker_name, answer.queue_offset, log_offset))


def half_constant(options: SinkOptions) -> bytes:
    """What makes a message a half one that brokers do not ask about before the transaction's time is over."""
    seconds = max(1, -(-options.transaction_timeout_ms // 1000))
    return encode_properties({**half_properties(options.group), Property.CHECK_IMMUNITY_SECONDS: str(seconds)})


def require_settles_once(client: BlockingClient, broker_name: str, addr: str) -> None:
    try:
        answer = client.call(addr, None, code=RequestCode.GET_BROKER_RUNTIME_INFO)
    except AccessDeniedError as error:
        reason = "deliveryGuarantee=exactly-once asks brokers whether they keep it: grant Get on the cluster"
        raise SparkError(f"{reason} ({error})") from None
    figures = KeyValues.decode(answer.body).table
    if figures.get(SETTLES_ONCE) != "true":
        version = figures.get("brokerVersionDesc", "of unknown version")
        raise SparkError(f"deliveryGuarantee=exactly-once cannot be kept: broker {broker_name} ({version}) stores a "
                         "message again when it is committed again; only RocketQ brokers do not")  # fmt: skip


# On the driver


@dataclass(frozen=True, slots=True)
class Batch:
    query: str
    number: int
    group: str


def commit_batch(batch: Batch, sent: Sequence[HalfHandle], manifests: Manifests, ends: Ends) -> Manifest:
    """Make each message of the batch visible once, also after an interrupted commit. SparkError: some are missing."""
    manifest = manifests.find(batch.query, batch.number)
    if manifest is None:
        drafted = Manifest(batch.query, batch.number, batch.group, False, tuple(sent), len(sent))
        manifest = manifests.decide(drafted)
    if not manifest.is_settled:
        _commit(manifest, ends)
    _roll_back(batch.group, set(sent) - set(manifest.handles), ends)
    if not manifest.is_settled:
        manifests.settle(manifest)
    return manifest


def abort_batch(batch: Batch, sent: Sequence[HalfHandle], manifests: Manifests, ends: Ends) -> None:
    """Without a manifest nothing counts, and what was sent may go. With one everything in it counts."""
    if manifests.find(batch.query, batch.number) is None:
        _roll_back(batch.group, sent, ends)


def _commit(manifest: Manifest, ends: Ends) -> None:
    failures = ends.end_all(manifest.group, manifest.handles, TransactionState.COMMIT)
    if failures:
        raise SparkError(
            f"batch {manifest.batch} of query {manifest.query}: {len(failures)} of {manifest.count} messages are not "
            f"committed: {describe_handles(failures)}"
        )


def _roll_back(group: str, handles: Iterable[HalfHandle], ends: Ends) -> None:
    """Optional: brokers discard undecided half messages anyway."""
    failures = ends.end_all(group, sorted(handles), TransactionState.ROLLBACK)
    if failures:
        log.warning("half messages of an attempt that does not count were not rolled back, brokers will give them up: "
                    "%s", describe_handles(failures))  # fmt: skip
