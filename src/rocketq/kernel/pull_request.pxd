from rocketq.kernel.primitives cimport equal_bytes
from rocketq.kernel.request_view cimport RequestView, credential_field

cdef class PullRequest:
    cdef readonly long long queue_id, queue_offset, count_max, sys_flag, commit_offset, version, bytes_max
    cdef Py_ssize_t group_at, group_len, topic_at, topic_len, expression_at, expression_len
    cdef bint read(self, RequestView header, const unsigned char* p) noexcept
    cdef bint take(self, RequestView header, const unsigned char* p, int index, int field) noexcept
    cdef bytes key(self, const unsigned char* p)

cdef int pull_field(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bytes piece(const unsigned char* p, Py_ssize_t at, Py_ssize_t count)
