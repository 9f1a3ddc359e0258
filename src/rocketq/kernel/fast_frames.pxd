from rocketq.kernel.fast_pulls cimport FastPulls
from rocketq.kernel.fast_sends cimport FastSends
from rocketq.kernel.parsed_frame cimport OTHER, PULL, SEND, ParsedFrame, ring_of_frames
from rocketq.kernel.primitives cimport load_i32
from rocketq.kernel.request_view cimport RequestView
from rocketq.kernel.signatures cimport Account, Accounts, SignatureCheck

cpdef enum:
    CODES_MAX = 1 << 10  # all request codes of the fast path are below
    AHEAD_MAX = 16  # frames that are parsed before the first is executed
    OUT_BYTES_MAX = 256 << 10  # of answers: then they are written before more is executed

cdef class FastFrames:
    cdef readonly Accounts accounts
    cdef readonly SignatureCheck signatures
    cdef readonly FastSends sends
    cdef readonly FastPulls pulls
    cdef readonly long long frame_bytes_max
    cdef readonly Py_ssize_t slow_at
    cdef readonly ParsedFrame refused
    cdef readonly bint stopped
    cdef long long scope
    cdef long long[5] executed
    cdef int code_index(self, ParsedFrame frame) noexcept
    cdef ParsedFrame _first
    cdef int forget_missed(self) except -1
    cdef bint is_no_frame(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef int parse_ahead(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, int count_max) except -1
    cdef bint authenticate(self, ParsedFrame frame, const unsigned char* p) except -1
    cdef int family_of(self, ParsedFrame frame) noexcept
    cdef Py_ssize_t run(self, bytes data, Py_ssize_t at, bytes born_host, long long now_ms) except -1
    cdef Py_ssize_t execute_all(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, bytes born_host, long long now_ms) except -1
    cdef bint execute(self, ParsedFrame frame, const unsigned char* p, bytes born_host, long long now_ms) except -1
