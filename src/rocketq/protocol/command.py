"""A command: one request or one answer, without its frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from rocketq.protocol.flags import CommandFlag, Language
from rocketq.protocol.versions import OUR_VERSION

JAVA_MEMBERS: Final = (
    "code",
    "extFields",
    "flag",
    "language",
    "opaque",
    "remark",
    "serializeTypeCurrentRPC",
    "version",
)
"""The members of a JSON header in the order Java writes them."""


_RESPONSE: Final = int(CommandFlag.RESPONSE)  # operations on enum members are expensive
_ONEWAY: Final = int(CommandFlag.ONEWAY)


class HeaderForm(IntEnum):
    """How a header is written; the first byte after a frame's length."""

    JSON = 0
    BINARY = 1


@dataclass(slots=True, kw_only=True)  # not frozen: that doubles what it takes to make one, and each request makes two
class Command:
    """A request (flag bit 0 clear) or a response; no remark and no body are None and b""."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: Language = Language.PYTHON
    version: int = OUR_VERSION
    remark: str | None = None
    ext_fields: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    form: HeaderForm = HeaderForm.JSON
    json_members: tuple[str, ...] | None = field(default=None, compare=False, repr=False)
    """The members of a received JSON header in their order, so that it is written again as it came."""
    fault: str | None = None
    """What is wrong with the header of a received request, of which only flag and opaque are known then."""

    received_s: float = field(default=0.0, compare=False, repr=False)
    """When a request was dispatched, by the performance counter; 0 where requests are not observed."""
    is_held: bool = field(default=False, compare=False, repr=False)
    """Whether the request was held: its handler returned without an answer."""

    @property
    def is_response(self) -> bool:
        return bool(self.flag & _RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & _ONEWAY)

    def answer(
        self,
        code: int,
        *,
        remark: str | None = None,
        ext_fields: Mapping[str, str] | None = None,
        body: bytes = b"",
        version: int = OUR_VERSION,
    ) -> Command:
        """The response to this request, in the header form it was asked in."""
        return Command(
            code=code,
            opaque=self.opaque,
            flag=CommandFlag.RESPONSE,
            version=version,
            remark=remark,
            ext_fields=ext_fields or {},
            body=body,
            form=self.form,
        )
