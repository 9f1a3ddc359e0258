from rocketq.kernel.primitives cimport equal_bytes, load_i32, load_i64, prefetch, signed_i32, store_i32, store_i64, zero_bytes
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.properties cimport PropertySpans, java_hash

cdef int seconds_since(long long begin_ms, long long store_ms) noexcept
cdef int key_hash(unsigned int value) noexcept

cpdef enum:
    PENDING_MAX = 32

cdef class IndexTail:
    cdef readonly MappedBuffer file
    cdef unsigned char* p
    cdef readonly long long slots, units_max, count
    cdef readonly int used_slots
    cdef readonly long long begin_ms, end_ms, begin_offset, end_offset
    cdef int pending
    cdef int _hashes[PENDING_MAX]
    cdef Py_ssize_t _slots_at[PENDING_MAX]
    cdef long long _offsets[PENDING_MAX]
    cdef long long _stored_ms[PENDING_MAX]
    cdef bint has_room(self, long long count) noexcept
    cdef void defer(self, int hashed, long long log_offset, long long store_ms) noexcept
    cdef void drain(self) noexcept
    cdef void put_at(self, Py_ssize_t slot_at, int hashed, long long log_offset, long long store_ms) noexcept
    cdef bint put(self, int hashed, long long log_offset, long long store_ms) noexcept
    cdef bint holds(self, int hashed, long long log_offset) noexcept
