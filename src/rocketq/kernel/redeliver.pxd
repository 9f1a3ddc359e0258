from rocketq.kernel.primitives cimport equal_bytes, find_byte, load_i32, load_i64
from rocketq.kernel.appender cimport APPENDED, SEGMENT_FULL, Appender
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.new_record cimport NewRecord
from rocketq.kernel.properties cimport PropertySpans
from rocketq.kernel.queue_units cimport QueueTail
from rocketq.kernel.reader cimport LogMap, is_of_queue
from rocketq.kernel.records cimport MESSAGE, RecordView

cdef bytes REAL_TOPIC, REAL_QID

# What a delivery answers.
cpdef enum:
    ALL_DELIVERED = 1
    NOT_DUE = 2
    UNDELIVERABLE = 3
    NEED_LOG = 4
    NEED_QUEUE = 5
    NEED_ROOM = 6
    NEED_FILE = 7
    NEED_INDEX = 8

cdef class Destination:
    cdef readonly bytes topic
    cdef readonly long long queue_id
    cdef readonly QueueTail tail
    cdef public long long count, size_bytes

cdef class Redelivery:
    cdef Appender _appender
    cdef LogMap _log
    cdef RecordView _view
    cdef NewRecord _record
    cdef PropertySpans _spans
    cdef dict _queues
    cdef Destination _last
    cdef bytes _born_host
    cdef Py_ssize_t _topic_at, _topic_len
    cdef readonly Py_ssize_t at
    cdef readonly long long due_ms, need_log_offset
    cdef public long long delivered, bad, gone, bad_log_offset
    cdef readonly bytes need_topic
    cdef readonly long long need_queue_id
    cdef readonly QueueTail waiting
    cdef int deliver(
        self, long long log_offset, int size, QueueTail queue, long long queue_offset, long long due_to_ms, long long now_ms,
        bint check_crc,
    ) except -100
    cdef int refuse(self, long long log_offset) noexcept
    cdef long long due_of(self, const unsigned char* p, RecordView view) except? -1
    cdef bint read_place(self, const unsigned char* p) noexcept
    cdef bint is_for_last(self, const unsigned char* p) noexcept
    cdef bint is_born_at_last(self, const unsigned char* p) noexcept
    cdef int look_up(self, MappedBuffer segment) except -100
