"""What becomes of a message that was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.flags import TransactionState


class SendStatus(StrEnum):
    """The message is stored in any case; all but SEND_OK say what is not sure yet."""

    SEND_OK = "SEND_OK"
    FLUSH_DISK_TIMEOUT = "FLUSH_DISK_TIMEOUT"
    FLUSH_SLAVE_TIMEOUT = "FLUSH_SLAVE_TIMEOUT"
    SLAVE_NOT_AVAILABLE = "SLAVE_NOT_AVAILABLE"


SEND_STATUSES: Final[Mapping[int, SendStatus]] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}


@dataclass(slots=True)
class SendResult:
    """`message_id` is the unique key, `offset_message_id` the place in the broker's log."""

    status: SendStatus
    message_id: str
    offset_message_id: str
    queue: MessageQueue
    queue_offset: int
    transaction_id: str | None = None
    recall_handle: str | None = None
    region: str | None = None
    trace_on: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionResult:
    """What was sent, and how the local transaction ended; `error` is what it raised."""

    sent: SendResult
    state: TransactionState
    error: BaseException | None = None


class Accepted(NamedTuple):
    """What a broker says of what it stored: in which queue really, and from which offset on."""

    code: int
    fields: Mapping[str, str]
    queue: MessageQueue
    queue_offset: int


def accepted(code: int, fields: Mapping[str, str], queue: MessageQueue) -> Accepted:
    """The answer for a message meant for this queue; RemoteProtocolError where it is not to be understood."""
    try:
        fields["msgId"]
        queue_id, queue_offset = int(fields["queueId"]), int(fields["queueOffset"])
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(f"the answer to a send lacks {error}") from None
    if queue_id != queue.queue_id:
        queue = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue_id)
    return Accepted(code, fields, queue, queue_offset)


def send_result(answer: Accepted, unique_key: str) -> SendResult:
    code, fields, queue, queue_offset = answer
    return SendResult(
        SEND_STATUSES[code],
        unique_key,
        fields["msgId"],
        queue,
        queue_offset,
        fields.get("transactionId"),
        fields.get("recallHandle"),
        fields.get("MSG_REGION"),
        fields.get("TRACE_ON") != "false",
    )


def batch_results(answer: Accepted, unique_keys: Sequence[str]) -> list[SendResult]:
    """Of each message of a batch: they lie one after the other, and their ids are in one text."""
    first = send_result(answer, "")
    ids = first.offset_message_id.split(",")
    if len(ids) != len(unique_keys):
        ids = ids + [""] * (len(unique_keys) - len(ids))  # a broker that stores the batch as one has one id
    status, queue, region, trace_on = first.status, first.queue, first.region, first.trace_on
    return [
        SendResult(status, unique_key, offset_id, queue, first.queue_offset + at, None, None, region, trace_on)
        for at, (unique_key, offset_id) in enumerate(zip(unique_keys, ids, strict=False))
    ]
