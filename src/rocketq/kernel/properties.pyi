"""Written by tools/kernel_stubs.py from properties.pxd and properties.py."""

from typing import Final

TAGS: Final[bytes]
KEYS: Final[bytes]
DELAY: Final[bytes]
UNIQ_KEY: Final[bytes]

class PropertySpans:
    def __init__(self) -> None: ...

def hash_text(text: str, seed: int = ...) -> int: ...
