from rocketq.kernel.primitives cimport equal_bytes
from rocketq.kernel.request_view cimport RequestView, credential_field

cdef class SendRequest:
    cdef readonly bint batch
    cdef readonly long long queue_id, sys_flag, born_ms, user_flag
    cdef Py_ssize_t group_at, group_len, topic_at, topic_len
    cdef int properties
    cdef bint read(self, RequestView header, const unsigned char* p) noexcept
    cdef bint take(self, RequestView header, const unsigned char* p, int index, int field) noexcept

cdef int letter_field(RequestView header, const unsigned char* p, int index) noexcept
cdef int named_field(RequestView header, const unsigned char* p, int index) noexcept
