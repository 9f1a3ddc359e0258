"""Written by tools/kernel_stubs.py from batch_encode.pxd and batch_encode.py."""

from collections.abc import Container
from typing import Final

from typing_extensions import Buffer

NO_BODY: Final = 1
EMPTY_BODY: Final = 2
BODY_TOO_LARGE: Final = 3
PROPERTIES_TOO_LONG: Final = 4
TAGS_SEPARATOR: Final = 5
KEYS_SEPARATOR: Final = 6
SHARDING_SEPARATOR: Final = 7
PROPERTY_NAME: Final = 8
PROPERTY_SEPARATOR: Final = 9

class TextSource:
    def __init__(self, ends: Buffer, data: Buffer | None, valid: Buffer | None, offset: int) -> None: ...

class NumberSource:
    def __init__(self, numbers: Buffer, valid: Buffer | None, offset: int) -> None: ...

class BatchEncoder:
    body: TextSource | None
    tags: TextSource | None
    keys: TextSource | None
    sharding_key: TextSource | None
    delay_level: NumberSource | None
    deliver_ms: NumberSource | None
    ordinal: NumberSource | None
    ordinal_first: int
    sequence: int
    body_bytes_max: int
    properties_bytes_max: int
    @property
    def out(self) -> bytearray: ...
    @property
    def used(self) -> int: ...
    @property
    def count(self) -> int: ...
    @property
    def faults(self) -> list[tuple[int, int]]: ...
    def __init__(
        self,
        id_head: bytes,
        origin: bytes,
        constant: bytes,
        left_out: Container[bytes],
        body_bytes_max: int,
        properties_bytes_max: int,
    ) -> None: ...
    def clear(self) -> None: ...
    def set_properties(self, maps: TextSource, names: TextSource, values: TextSource) -> None: ...
    def forget_names(self) -> None: ...
    def make_room(self, size: int) -> None: ...
    def encode(self, row: int, stop: int, bytes_max: int, extra: int) -> int: ...
