"""Sends, replies, recalls and the second phase of transactions."""

from __future__ import annotations

from typing import ClassVar

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers.wire import I32, I64, Header, header, wire
from rocketq.protocol.names import AUTO_CREATE_TOPIC

_LETTER_CODES = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.SEND_REPLY_MESSAGE_V2,
)


@header
class SendRequest(Header):
    """Codes 10 and 324 use the names, 310, 320 and 325 the letters; see `decode_send`."""

    CODE: ClassVar = RequestCode.SEND_MESSAGE
    group: str = wire("producerGroup", letter="a", default="")
    topic: str = wire("topic", letter="b")
    default_topic: str = wire("defaultTopic", letter="c", default=AUTO_CREATE_TOPIC)
    default_queue_count: I32 = wire("defaultTopicQueueNums", letter="d", default=0)
    queue_id: I32 = wire("queueId", letter="e")
    sys_flag: I32 = wire("sysFlag", letter="f")
    born_ms: I64 = wire("bornTimestamp", letter="g")
    flag: I32 = wire("flag", letter="h")
    properties: str = wire("properties", letter="i", default="")
    reconsume_times: I32 = wire("reconsumeTimes", letter="j", default=0)
    unit_mode: bool = wire("unitMode", letter="k", default=False)
    max_reconsume_times: I32 | None = wire("maxReconsumeTimes", letter="l", default=None)
    batch: bool = wire("batch", letter="m", default=False)
    broker_name: str | None = wire("bname", letter="n", default=None)


@header
class SendResponse(Header):
    """Where the message went; also there for codes 10, 11 and 12, which mean "stored, but"."""

    message_id: str = wire("msgId")
    queue_id: I32 = wire("queueId")
    queue_offset: I64 = wire("queueOffset")
    transaction_id: str | None = wire("transactionId", default=None)
    region: str | None = wire("MSG_REGION", default=None)
    trace_on: bool | None = wire("TRACE_ON", default=None)
    batch_unique_id: str | None = wire("batchUniqId", default=None)
    recall_handle: str | None = wire("recallHandle", default=None)


@header
class PushReplyRequest(Header):
    """Broker to client: the reply to a request message. Hosts are Java socket texts such as `/10.0.0.9:50123`."""

    CODE: ClassVar = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    group: str = wire("producerGroup")
    topic: str = wire("topic")
    default_topic: str = wire("defaultTopic", default=AUTO_CREATE_TOPIC)
    default_queue_count: I32 = wire("defaultTopicQueueNums", default=0)
    queue_id: I32 = wire("queueId")
    sys_flag: I32 = wire("sysFlag")
    born_ms: I64 = wire("bornTimestamp")
    flag: I32 = wire("flag")
    properties: str = wire("properties", default="")
    reconsume_times: I32 = wire("reconsumeTimes", default=0)
    unit_mode: bool = wire("unitMode", default=False)
    born_host: str = wire("bornHost")
    store_host: str = wire("storeHost")
    store_ms: I64 = wire("storeTimestamp")


@header
class RecallRequest(Header):
    CODE: ClassVar = RequestCode.RECALL_MESSAGE
    group: str | None = wire("producerGroup", default=None)
    topic: str = wire("topic")
    handle: str = wire("recallHandle")


@header
class RecallResponse(Header):
    message_id: str = wire("msgId")


def decode_send(command: Command) -> SendRequest:
    """The header of any send, whichever names its code uses."""
    if uses_letters(command.code):
        return SendRequest.decode_letters(command.ext_fields)
    return SendRequest.decode(command.ext_fields)


def encode_send(request: SendRequest, code: RequestCode) -> dict[str, str]:
    return request.encode_letters() if uses_letters(code) else request.encode()


def uses_letters(code: int) -> bool:
    return code in _LETTER_CODES


@header
class EndTransactionRequest(Header):
    """`state` is a TransactionState; other numbers are possible and refused by the broker with code 1."""

    CODE: ClassVar = RequestCode.END_TRANSACTION
    group: str = wire("producerGroup")
    half_queue_offset: I64 = wire("tranStateTableOffset")
    half_log_offset: I64 = wire("commitLogOffset")
    state: I32 = wire("commitOrRollback")
    from_check: bool = wire("fromTransactionCheck", default=False)
    message_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    topic: str | None = wire("topic", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class CheckTransactionRequest(Header):
    """Broker to client, with the half message as body: how did it end?"""

    CODE: ClassVar = RequestCode.CHECK_TRANSACTION_STATE
    half_queue_offset: I64 = wire("tranStateTableOffset")
    half_log_offset: I64 = wire("commitLogOffset")
    message_id: str | None = wire("msgId", default=None)
    transaction_id: str | None = wire("transactionId", default=None)
    offset_message_id: str | None = wire("offsetMsgId", default=None)
    topic: str | None = wire("topic", default=None)
    broker_name: str | None = wire("bname", default=None)


@header
class ResumeCheckRequest(Header):
    CODE: ClassVar = RequestCode.RESUME_CHECK_HALF_MESSAGE
    message_id: str | None = wire("msgId", default=None)
    topic: str | None = wire("topic", default=None)
