from rocketq.kernel.primitives cimport equal_bytes

cdef class FrameHeader:
    cdef readonly bint binary
    cdef bint bad
    cdef readonly int count
    cdef readonly long long code, opaque, flag, version
    cdef Py_ssize_t name_at[24]
    cdef Py_ssize_t name_len[24]
    cdef Py_ssize_t value_at[24]
    cdef Py_ssize_t value_len[24]
    cdef bint escaped[24]
    cdef void clear(self, bint binary) noexcept
    cdef bint add(self, Py_ssize_t name_at, Py_ssize_t name_len, Py_ssize_t value_at, Py_ssize_t value_len, bint escaped) noexcept
    cdef bint is_named(self, const unsigned char* p, int index, const unsigned char* name, Py_ssize_t name_len) noexcept
    cdef bint has_text(self, const unsigned char* p, int index, const unsigned char* text, Py_ssize_t text_len) noexcept
    cdef long long number(self, const unsigned char* p, int index) noexcept
    cdef long long small_number(self, const unsigned char* p, int index) noexcept

cdef long long number_at(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_number(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
