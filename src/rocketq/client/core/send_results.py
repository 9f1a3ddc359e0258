"""What becomes of a message that was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

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


def send_result(code: int, fields: Mapping[str, str], unique_key: str, queue: MessageQueue) -> SendResult:
    """What the broker says, for the queue it really chose; RemoteProtocolError where that is not to be understood."""
    queue_id, queue_offset = _place(fields)
    if queue_id != queue.queue_id:
        queue = MessageQueue(topic=queue.topic, broker_name=queue.broker_name, queue_id=queue_id)
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


def batch_results(
    code: int, fields: Mapping[str, str], unique_keys: Sequence[str], queue: MessageQueue
) -> list[SendResult]:
    """Of each message of a batch: they lie one after the other, and their ids are in one text."""
    first = send_result(code, fields, "", queue)
    ids = first.offset_message_id.split(",")
    if len(ids) != len(unique_keys):
        ids = ids + [""] * (len(unique_keys) - len(ids))  # a broker that stores the batch as one has one id
    status, queue, region, trace_on = first.status, first.queue, first.region, first.trace_on
    return [
        SendResult(status, unique_key, offset_id, queue, first.queue_offset + at, None, None, region, trace_on)
        for at, (unique_key, offset_id) in enumerate(zip(unique_keys, ids, strict=False))
    ]


def _place(fields: Mapping[str, str]) -> tuple[int, int]:
    try:
        fields["msgId"]
        return int(fields["queueId"]), int(fields["queueOffset"])
    except (KeyError, ValueError) as error:
        raise RemoteProtocolError(f"the answer to a send lacks {error}") from None
