"""Requests made of typed headers."""

from __future__ import annotations

from collections.abc import Mapping

from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import CommandFlag
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
