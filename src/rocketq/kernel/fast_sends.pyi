"""Written by tools/kernel_stubs.py from fast_sends.pxd and fast_sends.py."""

from typing import Final, final

from rocketq.kernel.admission import SendGrant
from rocketq.kernel.answers import AnswerBuffer
from rocketq.kernel.appender import Appender
from rocketq.kernel.queue_cache import QueueCache
from rocketq.kernel.signatures import Account

IDS_BYTES_MAX: Final = 8388608
RECORD_BYTES_MORE: Final = 123
GRANTS_MAX: Final = 50000
NOT_A_QUEUE: Final[int]
REVOKED: Final[int]

@final
class FastSends:
    open: bool
    durable: bool
    indexed: bool
    short_of_room: bool
    body_bytes_max: int
    held_max: int
    held_count: int
    generation: int
    missed: list[tuple[tuple[int, Account | None, bytes, bytes], int]]
    grown: list[SendGrant]
    @property
    def appender(self) -> Appender: ...
    @property
    def out(self) -> AnswerBuffer: ...
    @property
    def held(self) -> AnswerBuffer: ...
    @property
    def cache(self) -> QueueCache: ...
    @property
    def taken(self) -> int: ...
    @property
    def taken_bytes(self) -> int: ...
    @property
    def transactions_since(self) -> int: ...
    def __init__(self, appender: Appender, host_hex: bytes, transactions_since: int) -> None: ...
    def add_grant(self, grant: SendGrant) -> None: ...
    def grant_of(self, key: tuple[int, Account | None, bytes, bytes]) -> SendGrant | None: ...
    def clear_grants(self) -> None: ...
