from rocketq.kernel.admission cimport SendGrant
from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, find_byte
from rocketq.kernel.request_view cimport RequestView, unescape_json
from rocketq.kernel.send_request cimport SendRequest

cpdef enum:
    PROPERTIES_BYTES_MAX = 32767

cdef class SendProperties:
    cdef readonly bint waits, keyed
    cdef readonly Py_ssize_t length
    cdef readonly int delay_level
    cdef object _memory
    cdef unsigned char* p
    cdef Py_ssize_t unique_at, unique_len
    cdef bint load(self, RequestView header, const unsigned char* p, int index, bint batch, SendGrant grant) noexcept
    cdef bint edit(self, Py_ssize_t count, bint batch, SendGrant grant) noexcept
    cdef bint keeps(
        self, Py_ssize_t at, Py_ssize_t name_end, Py_ssize_t item_end, Py_ssize_t out, bint batch, bint traced
    ) noexcept
    cdef bint put_destination(self, const unsigned char* p, SendRequest request) noexcept
    cdef bint has_name_before(self, Py_ssize_t until, Py_ssize_t at, Py_ssize_t count) noexcept

cdef bint is_slow_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bint is_real_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef int level_at(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t put_digits(unsigned char* p, Py_ssize_t at, long long value) noexcept
cdef bint is_trace_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bint is_plain_or_cut(const unsigned char* p, Py_ssize_t count) noexcept
cdef bint is_plain_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_true(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
