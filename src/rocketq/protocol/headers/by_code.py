"""Every family of headers, and the class of a request code among them."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers import (
    admin,
    groups,
    membership,
    messages,
    nameserver,
    offsets,
    pop,
    pull,
    send,
    topics,
    transactions,
)
from rocketq.protocol.headers.wire import Header

_FAMILIES = (admin, groups, membership, messages, nameserver, offsets, pop, pull, send, topics, transactions)

# Codes that share a header with the code its class names.
_SAME_HEADER: Final[dict[RequestCode, type[Header]]] = {
    RequestCode.LITE_PULL_MESSAGE: pull.PullRequest,
    RequestCode.SEND_MESSAGE_V2: send.SendRequest,
    RequestCode.SEND_BATCH_MESSAGE: send.SendRequest,
    RequestCode.SEND_REPLY_MESSAGE: send.SendRequest,
    RequestCode.SEND_REPLY_MESSAGE_V2: send.SendRequest,
    RequestCode.AUTH_CREATE_USER: admin.UserRequest,
    RequestCode.AUTH_UPDATE_USER: admin.UserRequest,
    RequestCode.AUTH_DELETE_USER: admin.UserRequest,
    RequestCode.AUTH_CREATE_ACL: admin.PolicyRequest,
    RequestCode.AUTH_UPDATE_ACL: admin.PolicyRequest,
    RequestCode.AUTH_DELETE_ACL: admin.PolicyRequest,
}


def _collect() -> dict[RequestCode, type[Header]]:
    headers = dict(_SAME_HEADER)
    for family in _FAMILIES:
        for value in vars(family).values():
            if isinstance(value, type) and issubclass(value, Header) and value.CODE is not None:
                assert headers.setdefault(value.CODE, value) is value, f"two headers claim {value.CODE!r}"
    return headers


HEADERS: Final = MappingProxyType(_collect())


def decode_header(command: Command) -> Header | None:
    """The typed ext fields of a request, None where its code has none; BadFieldError when one is missing or bad."""
    found = HEADERS.get(command.code)  # type: ignore[call-overload]
    if found is send.SendRequest:
        return send.decode_send(command)
    return None if found is None else found.decode(command.ext_fields)
