from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, find_byte
from rocketq.kernel.json_text cimport unescape_text
from rocketq.kernel.frame_header cimport FrameHeader

cdef class SendProperties:
    cdef readonly bint waits
    cdef readonly Py_ssize_t length
    cdef object _memory
    cdef unsigned char* p
    cdef bytes _cluster
    cdef Py_ssize_t _cluster_len
    cdef Py_ssize_t unique_at, unique_len
    cdef bint load(self, FrameHeader header, const unsigned char* p, int index, bint batch) noexcept
    cdef bint edit(self, Py_ssize_t count, bint batch) noexcept
    cdef bint note(self, Py_ssize_t at, Py_ssize_t name_end, Py_ssize_t item_end, Py_ssize_t out) noexcept
    cdef bint has_name_before(self, Py_ssize_t until, Py_ssize_t at, Py_ssize_t count) noexcept

cdef bint is_cold_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bint is_plain_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_true(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
