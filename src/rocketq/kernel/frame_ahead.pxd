from rocketq.kernel.frame_header cimport FrameHeader
from rocketq.kernel.send_request cimport SendRequest

cpdef enum:
    COLD = 0
    SEND = 1
    PULL = 2

cdef class FrameAhead:
    cdef FrameHeader header
    cdef SendRequest request
    cdef FrameAhead next
    cdef Py_ssize_t at, end, body_at
    cdef int kind
    cdef bint plain
    cdef unsigned long long hashed
    cdef Py_ssize_t place

cdef FrameAhead ring_of_frames(int count)
