"""Written by tools/kernel_stubs.py from send_properties.pxd and send_properties.py."""

from typing import Final

PROPERTIES_BYTES_MAX: Final = 32767
TEXT_BYTES_MAX: Final[int]
SUFFIX_BYTES_MAX: Final[int]

class SendProperties:
    @property
    def waits(self) -> bool: ...
    @property
    def keyed(self) -> bool: ...
    @property
    def length(self) -> int: ...
    @property
    def delay_level(self) -> int: ...
    def __init__(self) -> None: ...
