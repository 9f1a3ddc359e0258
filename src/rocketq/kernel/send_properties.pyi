"""Written by tools/kernel_stubs.py from send_properties.pxd and send_properties.py."""

from typing import Final

TEXT_BYTES_MAX: Final[int]
SUFFIX_BYTES_MAX: Final[int]

class SendProperties:
    @property
    def waits(self) -> bool: ...
    @property
    def length(self) -> int: ...
    def __init__(self) -> None: ...
