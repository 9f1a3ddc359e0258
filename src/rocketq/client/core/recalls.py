"""Handles by which messages with a timer are taken back, as users give them."""

from __future__ import annotations

from rocketq.client.errors import RecallHandleError
from rocketq.errors import RemoteProtocolError
from rocketq.protocol.handles import RecallHandle


def recall_place(handle: object) -> RecallHandle:
    """Where the message of a handle waits; RecallHandleError when it is none."""
    if handle is None:
        raise RecallHandleError("the message has no recall handle: only one with a timer has, not of every broker")
    if not isinstance(handle, str):
        raise RecallHandleError(f"a recall handle is a text, not {type(handle).__name__}")
    try:
        return RecallHandle.decode(handle)
    except RemoteProtocolError as error:
        raise RecallHandleError(str(error)) from None
