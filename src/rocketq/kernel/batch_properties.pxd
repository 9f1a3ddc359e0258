from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, find_byte
from rocketq.kernel.properties cimport PropertySpans
from rocketq.kernel.send_properties cimport is_slow_name

cpdef enum:
    EXTRAS_MAX = 96  # of a batch itself; the store takes fewer

cdef class BatchProperties:
    cdef PropertySpans spans
    cdef int count
    cdef bint cold, tells, _needs_mark
    cdef Py_ssize_t size
    cdef const unsigned char* _p
    cdef Py_ssize_t _starts[EXTRAS_MAX]
    cdef Py_ssize_t _name_ends[EXTRAS_MAX]
    cdef Py_ssize_t _ends[EXTRAS_MAX]
    cdef bint _there[EXTRAS_MAX]
    cdef bint load(self, const unsigned char* p, Py_ssize_t length) noexcept
    cdef void look(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef void tick(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef void add_sizes(self) noexcept
    cdef Py_ssize_t join(self, unsigned char* to, Py_ssize_t at) noexcept
