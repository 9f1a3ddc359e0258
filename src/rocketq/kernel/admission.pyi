"""Written by tools/kernel_stubs.py from admission.pxd and admission.py."""

from collections.abc import Container, Sequence
from typing import Final, final

from rocketq.kernel.answers import AnswerTemplate
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.signatures import Account

WINDOW_MS: Final = 1000

@final
class Generation:
    number: int
    def __init__(self) -> None: ...
    def bump(self, *anything: object) -> None: ...

@final
class TokenBucket:
    @property
    def name(self) -> str: ...
    @property
    def unit(self) -> str: ...
    @property
    def rate(self) -> float: ...
    @property
    def tokens(self) -> float: ...
    def __init__(self, name: str, unit: str, rate: float) -> None: ...
    def refill(self, now_ms: int) -> None: ...
    def has_tokens(self, now_ms: int) -> bool: ...
    def take(self, count: int) -> None: ...
    def rate_now(self, now_ms: int) -> float: ...

class Grant:
    generation: int
    @property
    def topic(self) -> bytes: ...
    @property
    def group(self) -> bytes: ...
    @property
    def scope(self) -> int: ...
    @property
    def account(self) -> Account | None: ...
    @property
    def queues(self) -> list[QueueTail | None]: ...
    @property
    def count(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def times(self) -> int: ...
    def __init__(
        self,
        topic: bytes,
        group: bytes,
        scope: int,
        account: Account | None,
        queues: list[QueueTail | None],
        generation: int,
    ) -> None: ...
    def limit(self, buckets: Sequence[TokenBucket]) -> None: ...
    def collect(self) -> tuple[int, int, int]: ...

@final
class SendGrant(Grant):
    @property
    def sys_flag(self) -> int: ...
    @property
    def suffix(self) -> bytes: ...
    @property
    def traced(self) -> bool: ...
    @property
    def templates(self) -> tuple[AnswerTemplate, AnswerTemplate, AnswerTemplate, AnswerTemplate]: ...
    def __init__(
        self,
        topic: bytes,
        group: bytes,
        scope: int,
        account: Account | None,
        queues: list[QueueTail | None],
        generation: int,
        sys_flag: int,
        suffix: bytes,
        traced: bool,
        templates: tuple[AnswerTemplate, AnswerTemplate, AnswerTemplate, AnswerTemplate],
    ) -> None: ...

@final
class PullGrant(Grant):
    positions: dict[int, int]
    commits: dict[int, int]
    @property
    def key(self) -> tuple[int, Account | None, bytes]: ...
    @property
    def tag_codes(self) -> Container[int] | None: ...
    @property
    def version(self) -> int: ...
    @property
    def broker_id(self) -> int: ...
    @property
    def slow_broker_id(self) -> int: ...
    @property
    def topic_sys_flag(self) -> int: ...
    @property
    def group_sys_flag(self) -> int: ...
    def __init__(
        self,
        key: tuple[int, Account | None, bytes],
        topic: bytes,
        group: bytes,
        scope: int,
        account: Account | None,
        queues: list[QueueTail | None],
        generation: int,
        tag_codes: Container[int] | None,
        version: int,
        numbers: tuple[int, int, int, int],
    ) -> None: ...
