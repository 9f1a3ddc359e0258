"""Written by tools/kernel_stubs.py from parsed_frame.pxd and parsed_frame.py."""

from typing import Final, final

from rocketq.kernel.request_view import RequestView

OTHER: Final = 0
SEND: Final = 1
PULL: Final = 2

@final
class ParsedFrame:
    @property
    def header(self) -> RequestView: ...
    @property
    def at(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def kind(self) -> int: ...
    @property
    def well_formed(self) -> bool: ...
    def __init__(self) -> None: ...
