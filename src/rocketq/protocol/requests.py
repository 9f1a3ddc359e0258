"""Requests made from typed headers, and the typed header of a received request."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import CommandFlag
from rocketq.protocol.headers import (
    admin,
    groups,
    nameserver,
    offsets,
    pop,
    pull,
    send,
    topics,
)
from rocketq.protocol.headers.send import SendRequest, encode_send
from rocketq.protocol.headers.wire import Header
from rocketq.protocol.versions import OUR_VERSION


def make_request(
    header: Header | None,
    *,
    opaque: int,
    code: RequestCode | None = None,
    body: bytes = b"",
    extra: Mapping[str, str] | None = None,
    oneway: bool = False,
    form: HeaderForm = HeaderForm.JSON,
    version: int = OUR_VERSION,
) -> Command:
    """A request with this header; `code` is needed where the header has none or serves several."""
    code = code if code is not None else header.CODE if header is not None else None
    if code is None:
        raise ValueError("a request needs a code")
    return Command(
        code=code,
        opaque=opaque,
        flag=CommandFlag.ONEWAY if oneway else 0,
        version=version,
        ext_fields={**_ext_fields(header, code), **(extra or {})},
        body=body,
        form=form,
    )


def _ext_fields(header: Header | None, code: RequestCode) -> dict[str, str]:
    if header is None:
        return {}
    return encode_send(header, code) if isinstance(header, SendRequest) else header.encode()


_FAMILIES = (admin, groups, nameserver, offsets, pop, pull, send, topics)

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
