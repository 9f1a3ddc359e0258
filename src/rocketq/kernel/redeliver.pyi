"""Written by tools/kernel_stubs.py from redeliver.pxd and redeliver.py."""

from typing import Final

from rocketq.kernel.appender import Appender
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.reader import LogMap

ALL_DELIVERED: Final = 1
NOT_DUE: Final = 2
UNDELIVERABLE: Final = 3
NEED_LOG: Final = 4
NEED_QUEUE: Final = 5
NEED_ROOM: Final = 6
NEED_FILE: Final = 7
NEED_INDEX: Final = 8
REAL_TOPIC: Final[bytes]
REAL_QID: Final[bytes]

class Destination:
    count: int
    size_bytes: int
    @property
    def topic(self) -> bytes: ...
    @property
    def queue_id(self) -> int: ...
    @property
    def tail(self) -> QueueTail: ...
    def __init__(self, topic: bytes, queue_id: int, tail: QueueTail) -> None: ...

class Redelivery:
    delivered: int
    bad: int
    gone: int
    bad_log_offset: int
    @property
    def at(self) -> int: ...
    @property
    def due_ms(self) -> int: ...
    @property
    def need_log_offset(self) -> int: ...
    @property
    def need_topic(self) -> bytes: ...
    @property
    def need_queue_id(self) -> int: ...
    @property
    def waiting(self) -> QueueTail | None: ...
    def __init__(self, appender: Appender, log: LogMap) -> None: ...
    def add_destination(self, topic: bytes, queue_id: int, tail: QueueTail | None) -> None: ...
    def forget_destinations(self) -> None: ...
    def destinations(self) -> list[Destination]: ...
    def deliver_due(
        self,
        queue: QueueTail,
        units: MappedBuffer,
        first: int,
        stop: int,
        due_to_ms: int,
        now_ms: int,
        gone_until: int,
        check_crc: bool,
    ) -> int: ...
    def deliver_one(
        self, queue: QueueTail, queue_offset: int, log_offset: int, size: int, now_ms: int, check_crc: bool
    ) -> int: ...
