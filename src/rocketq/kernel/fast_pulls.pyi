"""Written by tools/kernel_stubs.py from fast_pulls.pxd and fast_pulls.py."""

from collections.abc import Callable
from typing import Final

from rocketq.kernel.admission import PullGrant
from rocketq.kernel.answers import AnswerBuffer, AnswerTemplate
from rocketq.kernel.reader import LogMap
from rocketq.kernel.signatures import Account

GRANTS_MAX: Final[int]
NOT_A_QUEUE: Final[int]

class PullLimits:
    count_max: int
    bytes_max: int
    asked_count_max: int
    asked_bytes_max: int
    memory_bytes: int
    scan_min: int
    check_crc: bool
    def __init__(self, **given: int) -> None: ...

class FastPulls:
    open: bool
    gone_until: int
    log_end: int
    missed: list[tuple[tuple[int, Account | None, bytes], int]]
    served: list[PullGrant]
    generation: int
    limits: PullLimits
    @property
    def out(self) -> AnswerBuffer: ...
    @property
    def taken(self) -> int: ...
    @property
    def given(self) -> int: ...
    @property
    def given_bytes(self) -> int: ...
    @property
    def flags_since(self) -> int: ...
    @property
    def answer_bytes_max(self) -> int: ...
    def __init__(
        self,
        out: AnswerBuffer,
        log: LogMap,
        visible_to: Callable[[], int],
        templates: tuple[AnswerTemplate, AnswerTemplate, AnswerTemplate, AnswerTemplate],
        flags_since: int,
        answer_bytes_max: int,
    ) -> None: ...
    def add_grant(self, grant: PullGrant) -> None: ...
    def grant_of(self, key: tuple[int, Account | None, bytes]) -> PullGrant | None: ...
    def clear_grants(self) -> None: ...
    def forget_pages(self) -> None: ...
