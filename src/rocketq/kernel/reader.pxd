from cpython.bytes cimport PyBytes_FromStringAndSize
from rocketq.kernel.primitives cimport (
    copy_bytes, equal_bytes, load_i32, load_i64, store_i32, store_i64,
)
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.filter_program cimport TRUE, FilterProgram
from rocketq.kernel.records cimport BAD_CRC, MESSAGE, RecordView

from rocketq.kernel.residency cimport ResidentPages
from rocketq.kernel.queue_units cimport QueueTail, is_address

cdef bint may_extend_to(QueueTail queue, long long code, object tag_codes) except -1
cdef bint is_of_queue(const unsigned char* p, RecordView view, QueueTail queue, long long queue_offset) noexcept

# What copy_places() answers.
cpdef enum:
    TAKEN = 1
    HAS_MORE = 0
    MISPLACED = -1

# What read() answers.
cpdef enum:
    READ_DONE = 1
    NEED_SEGMENT = 0
    READ_COLD = 2
    TAKEN_MAX = 8192  # the most records that one read takes

cdef class LogMap:
    cdef readonly long long segment_bytes
    cdef dict _segments
    cdef MappedBuffer _last
    cdef public set used
    cdef MappedBuffer find(self, long long log_offset)

cdef class ReadLimits:
    cdef public long long count_max, bytes_max, disk_count_max, disk_bytes_max, scan_max, log_end, memory_bytes
    cdef public bint resident_only

cdef class ReadRequest:
    cdef public ReadLimits limits
    cdef public long long gone_until
    cdef public object tag_codes, unit_filter, record_filter
    cdef public bint check_crc

cdef class QueueRead:
    cdef readonly int status, found, bad, bad_units, filtered
    cdef readonly long long scanned, need_log_offset, bad_log_offset, missing_log_offset
    cdef readonly object records
    cdef readonly Py_ssize_t size_bytes
    cdef public bint in_place
    cdef readonly bint cold
    cdef readonly ResidentPages pages
    cdef list _segments
    cdef RecordView _view
    cdef long long _taken_offset[TAKEN_MAX]
    cdef int _taken_size[TAKEN_MAX]
    cdef void reset(self)
    cdef Py_ssize_t resident_units(
        self, QueueTail queue, MappedBuffer units, Py_ssize_t first, Py_ssize_t stop, ReadLimits limits, long long gone_until,
    )
    cdef bint is_full(self, ReadLimits limits, int size) noexcept
    cdef bint is_full_from_disk(self, ReadLimits limits, int size) noexcept
    cdef int walk(
        self, LogMap log, QueueTail queue, MappedBuffer units, Py_ssize_t first, Py_ssize_t stop, ReadRequest request
    ) except -100
    cdef void gather(self)
    cdef void note_places(self)
    cdef void copy_to(self, unsigned char* target, Py_ssize_t at)
