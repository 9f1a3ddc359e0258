from rocketq.kernel.frame_ahead cimport FrameAhead
from rocketq.kernel.primitives cimport equal_bytes, place_hash, prefetch, prefetch_thing, zero_bytes
from rocketq.kernel.queue_units cimport QueueTail

cpdef enum:
    PLACES = 1 << 14
    STEPS_MAX = 8
    QUEUE_BYTES = 152
    ROUTE_BYTES = 88
    TOPIC_BYTES = 64

# Half a cache line; the things are kept alive by a list beside the table.
cdef struct Place:
    unsigned long long hashed
    void* queue
    void* route
    void* spare

cdef class QueuePlaces:
    cdef bytearray _memory
    cdef unsigned char* _p
    cdef Place* _places
    cdef list _kept
    cpdef clear(self)
    cdef unsigned long long hash_of(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count, long long queue_id) noexcept
    cdef void fetch(self, FrameAhead first, int count) noexcept
    cdef Py_ssize_t find(self, unsigned long long hashed) noexcept
    cdef void fetch_unit(self, Py_ssize_t at) noexcept
    cdef QueueTail queue_at(
        self, Py_ssize_t at, const unsigned char* p, Py_ssize_t topic_at, Py_ssize_t topic_len, long long queue_id
    )
    cdef bint put(self, unsigned long long hashed, QueueTail queue, object route) except -1
