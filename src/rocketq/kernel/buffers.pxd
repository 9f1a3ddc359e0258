from rocketq.kernel.primitives cimport crc32_more, populate_pages

cdef class MappedBuffer:
    cdef unsigned char* p
    cdef readonly Py_ssize_t size
    cdef readonly long long base
    cdef object _held
