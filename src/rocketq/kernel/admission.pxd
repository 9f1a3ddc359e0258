cpdef enum:
    WINDOW_MS = 1_000  # what rate_now() covers

cdef class Generation:
    cdef public long long number

cdef class TokenBucket:
    cdef readonly str name, unit
    cdef readonly double rate, tokens
    cdef long long at_ms, window_ms
    cdef long long taken, taken_before
    cpdef void refill(self, long long now_ms)
    cpdef bint has_tokens(self, long long now_ms)
    cpdef void take(self, long long count)
    cpdef double rate_now(self, long long now_ms)

cdef class Grant:
    cdef readonly bytes topic, group
    cdef readonly long long scope
    cdef readonly object account
    cdef readonly list queues
    cdef public long long generation
    cdef list message_quotas, byte_quotas
    cdef bint limited, noted
    cdef readonly long long count, size_bytes, times
    cdef bint is_over_quota(self, long long now_ms) except -1
    cdef int charge(self, long long count, long long size_bytes) except -1
    cdef bint is_for(self, long long scope, object account, long long generation) noexcept
    cdef bint note(self, long long count, long long size_bytes) except -1

cdef class SendGrant(Grant):
    cdef readonly int sys_flag
    cdef readonly bytes suffix
    cdef Py_ssize_t suffix_len
    cdef readonly bint traced
    cdef readonly tuple templates
    cdef readonly list delay_queues
    cdef readonly SendGrant delayed
    cdef readonly long long keyed_count, keyed_bytes
    cdef long long[14] sizes
    cdef bint note_send(self, long long count, long long size_bytes, bint keyed) except -1

cdef class PullGrant(Grant):
    cdef readonly object key, tag_codes
    cdef readonly long long version
    cdef readonly long long broker_id, slow_broker_id, topic_sys_flag, group_sys_flag
    cdef public dict positions, commits

cdef int size_class(long long size) noexcept
