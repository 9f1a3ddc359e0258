"""Messages for people and for programs."""

from __future__ import annotations

import base64
from typing import Any, Final

from rocketq.cli.commands.tables import NONE, pairs, time_text
from rocketq.client.core.send_flow import SendResult
from rocketq.client.core.stored_messages import StoredMessage

_LINE_CHARS_MAX: Final = 200


def message_json(message: StoredMessage) -> dict[str, Any]:
    """The body is in `body`, or in `body_base64` where it is no text."""
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue_id": message.queue.queue_id,
        "queue_offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_message_id": message.offset_message_id,
        "tag": message.tag,
        "keys": list(message.keys),
        "born_ms": message.born_ms,
        "born_host": str(message.born_host),
        "store_ms": message.store_ms,
        "store_host": str(message.store_host),
        "reconsume_times": message.reconsume_times,
        "flag": message.flag,
        "sys_flag": message.sys_flag,
        "stored_bytes": message.stored_bytes,
        "properties": dict(message.properties),
        **_body(message),
    }


def message_text(message: StoredMessage) -> str:
    """All of it."""
    head = {
        "topic": message.topic,
        "queue": f"{message.queue.broker_name}:{message.queue.queue_id}",
        "queue offset": message.queue_offset,
        "message id": message.message_id,
        "offset id": message.offset_message_id,
        "tag": message.tag or NONE,
        "keys": " ".join(message.keys) or NONE,
        "born": f"{time_text(message.born_ms)} at {message.born_host}",
        "stored": f"{time_text(message.store_ms)} at {message.store_host}, {message.stored_bytes} bytes",
        "delivered again": message.reconsume_times,
    }
    properties = {f"  {name}": value for name, value in message.properties.items()}
    return "\n".join([pairs(head), "properties", pairs(properties), "body", _body_text(message)])


def message_line(message: StoredMessage) -> str:
    """One line: when, where, what."""
    place = f"{message.queue.broker_name}:{message.queue.queue_id}@{message.queue_offset}"
    body = _body_text(message).replace("\n", "\\n")
    shortened = body if len(body) <= _LINE_CHARS_MAX else body[:_LINE_CHARS_MAX] + "…"
    return f"{time_text(message.store_ms)}  {place}  {message.tag or NONE}  {message.message_id}  {shortened}"


def sent_json(result: SendResult) -> dict[str, Any]:
    return {
        "status": result.status.value,
        "message_id": result.message_id,
        "offset_message_id": result.offset_message_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue_id": result.queue.queue_id,
        "queue_offset": result.queue_offset,
    }


def sent_text(result: SendResult) -> str:
    place = f"{result.queue.topic} {result.queue.broker_name}:{result.queue.queue_id}@{result.queue_offset}"
    return f"{result.status.value}  {place}  {result.message_id}"


def _body(message: StoredMessage) -> dict[str, Any]:
    fault = {} if message.body_fault is None else {"body_fault": message.body_fault}
    try:
        return {"body": message.body.decode(), **fault}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(message.body).decode(), **fault}


def _body_text(message: StoredMessage) -> str:
    try:
        return message.body.decode()
    except UnicodeDecodeError:
        return f"({len(message.body)} bytes) {message.body[:64].hex()}"
