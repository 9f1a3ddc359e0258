"""Written by tools/kernel_stubs.py from residency.pxd and residency.py."""

from typing import Final, final

from rocketq.kernel.buffers import MappedBuffer

CHUNKS: Final = 2048
PAGE_BITS: Final = 12
CHUNK_BITS: Final = 3

@final
class ResidentPages:
    def __init__(self) -> None: ...
    def forget(self) -> None: ...
    def covers(self, buffer: MappedBuffer, at: int, count: int) -> bool: ...
