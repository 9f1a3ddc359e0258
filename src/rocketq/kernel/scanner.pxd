from rocketq.kernel.primitives cimport equal_bytes, find_byte, load_i32, load_i64, skip_zeros, wrap_u32
from rocketq.kernel.appender cimport defer_keys, put_keys
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.index_units cimport IndexTail, key_hash, seconds_since
from rocketq.kernel.properties cimport PropertySpans, java_hash
from rocketq.kernel.queue_units cimport QueueTail, tags_code_of
from rocketq.kernel.records cimport RecordView, BAD_CRC, BAD_LENGTH, BLANK, MESSAGE

from rocketq.kernel.reader cimport LogMap

cdef bint is_torn(const unsigned char* p, Py_ssize_t at, Py_ssize_t length) noexcept
cdef bint has_key_hash(const unsigned char* p, RecordView view, PropertySpans spans, int hashed) noexcept

cdef class Scanner:
    cdef public dict queues
    cdef public object resolve, misfit, roll_index
    cdef public IndexTail index
    cdef public list delays_ms, touched
    cdef public bint check_crc, to_queues, compare_only, distrust
    cdef public long long keys, boundary
    cdef public object cross
    cdef readonly RecordView view
    cdef PropertySpans _spans
    cdef list _last_queues
    cdef bytes _last_topic
    cdef readonly Py_ssize_t at, last_at, good_end
    cdef readonly long long records, last_store_ms, keyed_from
    cdef public long long bad_crc, bad_crc_offset, doubtful
    cdef int walk(self, MappedBuffer buffer, Py_ssize_t at, Py_ssize_t stop) except -100
    cdef void drain(self) noexcept
    cdef void count_keys(self, const unsigned char* p) noexcept
    cdef QueueTail queue_of(self, const unsigned char* p)
    cdef int dispatch(self, const unsigned char* p, bint indexed) except -100
    cdef int dispatch_unit(self, const unsigned char* p, QueueTail queue) except -100
