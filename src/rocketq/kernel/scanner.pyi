"""Written by tools/kernel_stubs.py from scanner.pxd and scanner.py."""

from collections.abc import Callable

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.reader import LogMap
from rocketq.kernel.records import RecordView

class Scanner:
    queues: dict[bytes, list[QueueTail | None]]
    resolve: Callable[[bytes, int], QueueTail | None] | None
    misfit: Callable[[QueueTail, int, int, int, int], object] | None
    roll_index: Callable[[IndexTail], IndexTail | None] | None
    index: IndexTail | None
    delays_ms: list[int]
    touched: list[QueueTail]
    check_crc: bool
    to_queues: bool
    compare_only: bool
    distrust: bool
    keys: int
    boundary: int
    cross: Callable[[int], object] | None
    bad_crc: int
    bad_crc_offset: int
    doubtful: int
    @property
    def view(self) -> RecordView: ...
    @property
    def at(self) -> int: ...
    @property
    def last_at(self) -> int: ...
    @property
    def good_end(self) -> int: ...
    @property
    def records(self) -> int: ...
    @property
    def last_store_ms(self) -> int: ...
    @property
    def keyed_from(self) -> int: ...
    def __init__(
        self,
        resolve: Callable[[bytes, int], QueueTail | None] | None,
        misfit: Callable[[QueueTail, int, int, int, int], object] | None,
        roll_index: Callable[[IndexTail], IndexTail | None] | None,
    ) -> None: ...
    def forget_queues(self) -> None: ...
    def scan(self, buffer: MappedBuffer, at: int, stop: int) -> int: ...

def check_index_units(index: IndexTail, log: LogMap, first: int, log_start: int, before_ms: int) -> tuple[int, int]: ...
def walk_records(
    buffer: MappedBuffer, at: int, stop: int, view: RecordView, check_crc: bool
) -> tuple[int, int, int, int]: ...
