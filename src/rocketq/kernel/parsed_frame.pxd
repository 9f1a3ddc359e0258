from rocketq.kernel.request_view cimport RequestView
from rocketq.kernel.send_request cimport SendRequest

cpdef enum:
    OTHER = 0
    SEND = 1
    PULL = 2

cdef class ParsedFrame:
    cdef readonly RequestView header
    cdef SendRequest request
    cdef ParsedFrame next
    cdef readonly Py_ssize_t at, end
    cdef readonly int kind
    cdef readonly bint well_formed
    cdef bint plain
    cdef long long scope
    cdef object account
    cdef unsigned long long hashed
    cdef Py_ssize_t place

cdef ParsedFrame ring_of_frames(int count)
