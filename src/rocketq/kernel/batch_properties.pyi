"""Written by tools/kernel_stubs.py from batch_properties.pxd and batch_properties.py."""

from typing import Final

EXTRAS_MAX: Final = 96

class BatchProperties:
    def __init__(self) -> None: ...
