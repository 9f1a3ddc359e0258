from rocketq.kernel.admission cimport SendGrant
from rocketq.kernel.parsed_frame cimport ParsedFrame
from rocketq.kernel.primitives cimport equal_bytes, place_hash, prefetch, prefetch_thing, zero_bytes
from rocketq.kernel.queue_units cimport QueueTail
from rocketq.kernel.send_request cimport SendRequest

cpdef enum:
    PLACES = 1 << 14
    STEPS_MAX = 8  # places at which an entry may be, from the first on
    KEPT_MAX = 1 << 15
    QUEUE_BYTES = 152  # what is fetched of an object; more or less does no harm
    GRANT_BYTES = 128
    TOPIC_BYTES = 64

# Half a cache line; the objects are kept alive by a list beside the table.
cdef struct Place:
    unsigned long long hashed
    void* queue
    void* grant
    void* spare

cdef class QueueCache:
    cdef readonly QueueTail queue
    cdef readonly SendGrant grant
    cdef bytearray _memory
    cdef unsigned char* _p
    cdef Place* _places
    cdef list _kept
    cdef int _count
    cpdef clear(self)
    cdef unsigned long long hash_of(self, const unsigned char* p, SendRequest request, long long sender) noexcept
    cdef void fetch(self, ParsedFrame first, int count) noexcept
    cdef Py_ssize_t place_of(self, unsigned long long hashed) noexcept
    cdef void fetch_unit(self, Py_ssize_t at) noexcept
    cdef bint find(self, ParsedFrame frame, const unsigned char* p, long long generation) noexcept
    cdef bint put(self, unsigned long long hashed, QueueTail queue, SendGrant grant) except -1
