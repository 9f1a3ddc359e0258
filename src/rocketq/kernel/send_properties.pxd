from rocketq.kernel.admission cimport SendGrant
from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, find_byte
from rocketq.kernel.request_view cimport RequestView, unescape_json

cdef class SendProperties:
    cdef readonly bint waits
    cdef readonly Py_ssize_t length
    cdef object _memory
    cdef unsigned char* p
    cdef Py_ssize_t unique_at, unique_len
    cdef bint load(self, RequestView header, const unsigned char* p, int index, bint batch, SendGrant grant) noexcept
    cdef bint edit(self, Py_ssize_t count, bint batch, SendGrant grant) noexcept
    cdef bint keeps(
        self, Py_ssize_t at, Py_ssize_t name_end, Py_ssize_t item_end, Py_ssize_t out, bint batch, bint traced
    ) noexcept
    cdef bint has_name_before(self, Py_ssize_t until, Py_ssize_t at, Py_ssize_t count) noexcept

cdef bint is_slow_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bint is_trace_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bint is_plain_or_cut(const unsigned char* p, Py_ssize_t count) noexcept
cdef bint is_plain_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_true(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
