from rocketq.kernel.primitives cimport load_i32
from rocketq.kernel.binary_header cimport parse_binary_header
from rocketq.kernel.frame_ahead cimport COLD, PULL, SEND, FrameAhead, ring_of_frames
from rocketq.kernel.frame_header cimport FrameHeader
from rocketq.kernel.json_header cimport parse_json_header
from rocketq.kernel.pull_frames cimport PullFrames
from rocketq.kernel.send_frames cimport SendFrames

cpdef enum:
    AHEAD_MAX = 16
    OUT_BYTES_MAX = 256 << 10

cdef class HotFrames:
    cdef readonly SendFrames sends
    cdef readonly PullFrames pulls
    cdef readonly long long frame_bytes_max
    cdef readonly Py_ssize_t cold_at
    cdef readonly bint stopped
    cdef FrameAhead _first
    cdef bint is_no_frame(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef int look_ahead(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int count_max) noexcept
    cdef int look(self, FrameAhead frame, const unsigned char* p) noexcept
    cdef Py_ssize_t run(self, bytes data, Py_ssize_t at, bytes born_host, long long now_ms) except -1
    cdef Py_ssize_t take_all(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, bytes born_host, long long now_ms) except -1
    cdef bint take(self, FrameAhead frame, const unsigned char* p, bytes born_host, long long now_ms) except -1
