"""Written by tools/kernel_stubs.py from appender.pxd and appender.py."""

from collections.abc import Callable
from typing import Final

from typing_extensions import Buffer

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.queue_units import QueueTail

APPENDED: Final = 1
SEGMENT_FULL: Final = 0
NO_QUEUE_ROOM: Final = -1
BATCH_MALFORMED: Final = -2
BATCH_ITEM_TOO_LARGE: Final = -3
PROPERTIES_BYTES_MAX: Final[int]

class Appender:
    index: IndexTail | None
    roll_index: Callable[[IndexTail], IndexTail | None] | None
    delays_ms: list[int]
    touched: list[QueueTail]
    @property
    def segment(self) -> MappedBuffer | None: ...
    @property
    def position(self) -> int: ...
    @property
    def base(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def batch_offsets(self) -> list[int]: ...
    @property
    def log_offset(self) -> int: ...
    @property
    def queue_offset(self) -> int: ...
    @property
    def store_ms(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def batch_count(self) -> int: ...
    @property
    def measured_bytes(self) -> int: ...
    @property
    def measured_to(self) -> int: ...
    def __init__(self, store_host: bytes) -> None: ...
    def attach_segment(self, segment: MappedBuffer, position: int) -> None: ...
    def detach_segment(self) -> None: ...
    def close_segment(self) -> None: ...
    def copy_raw(self, data: Buffer) -> None: ...
    def append(
        self,
        queue: QueueTail,
        body: bytes,
        properties: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
        prepared_offset: int,
    ) -> int: ...
    def measure_batch(
        self, payload: bytes, topic_len: int, extra: bytes, sys_flag: int, body_max: int
    ) -> tuple[int, int]: ...
    def append_batch(
        self,
        queue: QueueTail,
        payload: bytes,
        extra: bytes,
        count: int,
        total: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
    ) -> int: ...
