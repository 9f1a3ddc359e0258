"""Written by tools/kernel_stubs.py from queue_cache.pxd and queue_cache.py."""

from typing import Final, final

from rocketq.kernel.admission import SendGrant
from rocketq.kernel.queue_units import QueueTail

PLACES: Final = 16384
STEPS_MAX: Final = 8
KEPT_MAX: Final = 32768
QUEUE_BYTES: Final = 152
GRANT_BYTES: Final = 128
TOPIC_BYTES: Final = 64

@final
class QueueCache:
    @property
    def queue(self) -> QueueTail | None: ...
    @property
    def grant(self) -> SendGrant | None: ...
    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def clear(self) -> None: ...
