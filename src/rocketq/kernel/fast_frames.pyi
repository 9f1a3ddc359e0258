"""Written by tools/kernel_stubs.py from fast_frames.pxd and fast_frames.py."""

from typing import Final, final

from rocketq.kernel.fast_pulls import FastPulls
from rocketq.kernel.fast_sends import FastSends
from rocketq.kernel.parsed_frame import ParsedFrame
from rocketq.kernel.signatures import Accounts, SignatureCheck

CODES_MAX: Final = 1024
AHEAD_MAX: Final = 16
OUT_BYTES_MAX: Final = 262144

@final
class FastFrames:
    @property
    def accounts(self) -> Accounts | None: ...
    @property
    def signatures(self) -> SignatureCheck: ...
    @property
    def sends(self) -> FastSends: ...
    @property
    def pulls(self) -> FastPulls: ...
    @property
    def frame_bytes_max(self) -> int: ...
    @property
    def slow_at(self) -> int: ...
    @property
    def refused(self) -> ParsedFrame | None: ...
    @property
    def stopped(self) -> bool: ...
    def __init__(
        self, sends: FastSends, pulls: FastPulls, frame_bytes_max: int, accounts: Accounts | None = None
    ) -> None: ...
    def feed(self, data: bytes, at: int, born_host: bytes, now_ms: int) -> int: ...
    def refused_parts(
        self, data: bytes
    ) -> tuple[int, int, int, int, str | int, str, dict[str, str], bytes, int] | None: ...
