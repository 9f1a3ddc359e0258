"""Written by tools/kernel_stubs.py from new_record.pxd and new_record.py."""

from typing import final

@final
class NewRecord:
    def __init__(self) -> None: ...
