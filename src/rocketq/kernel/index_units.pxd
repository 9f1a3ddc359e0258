from rocketq.kernel.primitives cimport equal_bytes, load_i32, load_i64, signed_i32, store_i32, store_i64, zero_bytes
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.properties cimport PropertySpans, java_hash

cdef int seconds_since(long long begin_ms, long long store_ms) noexcept
cdef int key_hash(unsigned int value) noexcept

cdef class IndexTail:
    cdef readonly MappedBuffer file
    cdef unsigned char* p
    cdef readonly long long slots, units_max, count
    cdef readonly int used_slots
    cdef readonly long long begin_ms, end_ms, begin_offset, end_offset
    cdef bint put(self, int hashed, long long log_offset, long long store_ms) noexcept
    cdef bint holds(self, int hashed, long long log_offset) noexcept
