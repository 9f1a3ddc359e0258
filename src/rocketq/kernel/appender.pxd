from rocketq.kernel.primitives cimport (
    body_crc, copy_bytes, find_byte, load_i16, load_i32, publish, store_i16, store_i32, store_i64,
)
from rocketq.kernel.batch_properties cimport BatchProperties
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.index_units cimport IndexTail, key_hash
from rocketq.kernel.new_record cimport NewRecord
from rocketq.kernel.properties cimport PropertySpans, java_hash
from rocketq.kernel.queue_units cimport QueueTail, tags_code_of
from rocketq.kernel.records cimport MAGIC_BLANK, MAGIC_V1, record_size

# What an append answers.
cpdef enum:
    APPENDED = 1
    SEGMENT_FULL = 0
    NO_QUEUE_ROOM = -1
    BATCH_MALFORMED = -2
    BATCH_ITEM_TOO_LARGE = -3

cdef class Appender:
    cdef readonly MappedBuffer segment
    cdef unsigned char* p
    cdef readonly Py_ssize_t position
    cdef readonly long long base, end
    cdef bytes _store_host
    cdef public IndexTail index
    cdef public object roll_index
    cdef public list delays_ms
    cdef public list touched
    cdef readonly list batch_offsets
    cdef PropertySpans _spans
    cdef NewRecord _record, _inner
    cdef BatchProperties _batch
    cdef object _scratch
    cdef unsigned char* _scratch_p
    cdef readonly long long log_offset, queue_offset, store_ms, records, last_offset
    cdef readonly int size, batch_count
    cdef readonly Py_ssize_t measured_bytes, measured_to
    cdef bint measured_plain
    cdef int host_flags(self, Py_ssize_t born_host_len) noexcept
    cdef Py_ssize_t measure(
        self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t topic_len, const unsigned char* extra,
        Py_ssize_t extra_len, int sys_flag, Py_ssize_t body_max,
    ) noexcept
    cdef int put_batch(self, QueueTail queue, NewRecord record, Py_ssize_t count, Py_ssize_t total) except -100
    cdef int put(self, QueueTail queue, NewRecord record) except -100
    cdef int put_seen(self, QueueTail queue, PropertySpans spans, NewRecord record) except -100
    cdef void write(self, QueueTail queue, long long queue_offset, int size, NewRecord record) noexcept
    cdef void drain(self) noexcept
    cdef void touch(self, QueueTail queue)
    cdef Py_ssize_t merge(self, const unsigned char* inner, Py_ssize_t at, Py_ssize_t count) noexcept

cdef void defer_keys(
    IndexTail index, unsigned int seed, PropertySpans spans, const unsigned char* p, long long log_offset, long long store_ms
) noexcept
cdef IndexTail put_keys(
    IndexTail index, object roll_index, unsigned int seed, PropertySpans spans, const unsigned char* p,
    long long log_offset, long long store_ms, bint check_held,
)
