from rocketq.kernel.primitives cimport end_of_plain, equal_bytes
from rocketq.kernel.frame_header cimport FrameHeader, number_at

cdef bint parse_json_header(FrameHeader header, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint take_number(FrameHeader header, const unsigned char* p, Py_ssize_t at, Py_ssize_t count, long long value) noexcept
cdef bint is_skipped_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef Py_ssize_t parse_fields(FrameHeader header, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t end_of_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t end_of_escaped(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t end_of_word(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
