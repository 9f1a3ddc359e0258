"""Written by tools/kernel_stubs.py from reader.pxd and reader.py."""

from collections.abc import Callable, Container
from typing import Final, final

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.filter_program import FilterProgram
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.residency import ResidentPages

TAKEN: Final = 1
HAS_MORE: Final = 0
MISPLACED: Final = -1
READ_DONE: Final = 1
NEED_SEGMENT: Final = 0
READ_COLD: Final = 2
TAKEN_MAX: Final = 8192

class LogMap:
    used: set[int]
    @property
    def segment_bytes(self) -> int: ...
    def __init__(self, segment_bytes: int) -> None: ...
    def attach(self, segment: MappedBuffer) -> None: ...
    def detach(self, base: int) -> None: ...
    def clear(self) -> None: ...
    def idle(self) -> list[int]: ...
    def segment_of(self, log_offset: int) -> MappedBuffer | None: ...

class ReadLimits:
    count_max: int
    bytes_max: int
    disk_count_max: int
    disk_bytes_max: int
    scan_max: int
    log_end: int
    memory_bytes: int
    resident_only: bool
    def __init__(
        self,
        count_max: int,
        bytes_max: int,
        disk_count_max: int,
        disk_bytes_max: int,
        scan_max: int,
        log_end: int,
        memory_bytes: int,
        resident_only: bool = ...,
    ) -> None: ...

@final
class ReadRequest:
    limits: ReadLimits
    gone_until: int
    tag_codes: Container[int] | None
    unit_filter: Callable[[int], bool] | None
    record_filter: FilterProgram | Callable[[bytes], bool] | None
    check_crc: bool
    def __init__(
        self,
        limits: ReadLimits,
        gone_until: int,
        tag_codes: Container[int] | None,
        unit_filter: Callable[[int], bool] | None,
        record_filter: FilterProgram | Callable[[bytes], bool] | None,
        check_crc: bool,
    ) -> None: ...

class QueueRead:
    in_place: bool
    @property
    def status(self) -> int: ...
    @property
    def found(self) -> int: ...
    @property
    def bad(self) -> int: ...
    @property
    def bad_units(self) -> int: ...
    @property
    def filtered(self) -> int: ...
    @property
    def scanned(self) -> int: ...
    @property
    def need_log_offset(self) -> int: ...
    @property
    def bad_log_offset(self) -> int: ...
    @property
    def missing_log_offset(self) -> int: ...
    @property
    def records(self) -> bytes: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def cold(self) -> bool: ...
    @property
    def pages(self) -> ResidentPages: ...
    def __init__(self) -> None: ...
    def read(
        self, log: LogMap, queue: QueueTail, units: MappedBuffer, first: int, stop: int, request: ReadRequest
    ) -> int: ...

def copy_places(
    file: MappedBuffer, places: MappedBuffer, first: int, low: int, high: int, target: MappedBuffer
) -> tuple[int, int, int]: ...
