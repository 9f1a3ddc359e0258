from rocketq.kernel.primitives cimport copy_bytes, end_of_plain

cdef Py_ssize_t unescape_text(
    unsigned char* out, Py_ssize_t out_at, const unsigned char* p, Py_ssize_t at, Py_ssize_t end
) noexcept
cdef int hex_digit(int char) noexcept
