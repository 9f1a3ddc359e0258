from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.primitives cimport resident_end

cpdef enum:
    WINDOW_BYTES = 262144

cdef class ResidentRange:
    cdef MappedBuffer _buffer
    cdef Py_ssize_t _start, _end
    cpdef void forget(self)
    cpdef bint covers(self, MappedBuffer buffer, Py_ssize_t at, long long count)
