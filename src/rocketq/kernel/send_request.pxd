from rocketq.kernel.primitives cimport equal_bytes
from rocketq.kernel.frame_header cimport FrameHeader

cdef class SendRequest:
    cdef readonly bint batch
    cdef readonly long long queue_id, sys_flag, born_ms, user_flag
    cdef Py_ssize_t topic_at, topic_len
    cdef int properties
    cdef bint read(self, FrameHeader header, const unsigned char* p) noexcept
    cdef bint take(self, FrameHeader header, const unsigned char* p, int index, int field) noexcept

cdef int letter_field(FrameHeader header, const unsigned char* p, int index) noexcept
cdef int named_field(FrameHeader header, const unsigned char* p, int index) noexcept
