from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.primitives cimport resident_mask

cpdef enum:
    CHUNKS = 2048  # that are remembered: 64 MiB
    PAGE_BITS = 12  # where pages are larger, several bits stand for one
    CHUNK_BITS = 3

cdef class ResidentPages:
    cdef size_t _chunks[CHUNKS]
    cpdef void forget(self)
    cpdef bint covers(self, MappedBuffer buffer, Py_ssize_t at, long long count)
    cdef void look(self, MappedBuffer buffer, size_t base, size_t chunk) noexcept
