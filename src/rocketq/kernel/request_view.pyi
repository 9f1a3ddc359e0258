"""Written by tools/kernel_stubs.py from request_view.pxd and request_view.py."""

from typing import Final, final

CODE: Final = 1
EXT_FIELDS: Final = 2
FLAG: Final = 3
LANGUAGE: Final = 4
OPAQUE: Final = 5
REMARK: Final = 6
SERIALIZE_TYPE: Final = 7
VERSION: Final = 8
ACCESS_KEY: Final = 20
SIGNATURE: Final = 21
SECURITY_TOKEN: Final = 22
FIELDS_MAX: Final[int]

@final
class RequestView:
    @property
    def binary(self) -> bool: ...
    @property
    def count(self) -> int: ...
    @property
    def language(self) -> int: ...
    @property
    def code(self) -> int: ...
    @property
    def opaque(self) -> int: ...
    @property
    def flag(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def body_at(self) -> int: ...
    @property
    def end(self) -> int: ...
    def __init__(self) -> None: ...
    def parse_frame(self, frame: bytes) -> bool: ...
    def command_parts(
        self, data: bytes
    ) -> tuple[int, int, int, int, str | int, str, dict[str, str], bytes, int] | None: ...
