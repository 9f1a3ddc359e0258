from rocketq.kernel.primitives cimport send_now
from rocketq.kernel.answers cimport AnswerBuffer
from rocketq.kernel.appender cimport Appender
from rocketq.kernel.hot_frames cimport HotFrames
from rocketq.kernel.pull_frames cimport PullFrames
from rocketq.kernel.send_frames cimport SendFrames

cpdef enum:
    LINK_READ_BYTES_MAX = 192 << 10
    DEFERRED_BYTES_MAX = 4 << 10

cdef class HotDesk:
    cdef readonly HotFrames frames
    cdef SendFrames _sends
    cdef PullFrames _pulls
    cdef object _writer, _acquire, _release, _now_ns, _call_soon, _settle, _waiting
    cdef object _dispatcher
    cdef list _listeners
    cdef tuple _facts
    cdef object _trusted, _monotonic_ns
    cdef long long _trusted_to_ns
    cdef public long long sends_from_ms
    cdef public bint may_send, settling, stored
    cdef readonly list held
    cdef list _deferring
    cdef HotLink _last
    cdef bint is_alone(self, HotLink link)
    cdef int defer(self, HotLink link) except -1
    cdef void forget(self, HotLink link)
    cdef bint is_guarded(self, list guards) except -1
    cdef bint holds(self) except -1
    cdef Py_ssize_t serve(self, HotLink link, bytes data) except -2
    cdef Py_ssize_t run(self, HotLink link, bytes data, Py_ssize_t at) except -2
    cdef int note(self, HotLink link, long long before) except -1
    cpdef bint is_awaited(self) except -1

cdef class HotLink:
    cdef HotDesk _desk
    cdef readonly object owner, decoder
    cdef readonly bytes born_host
    cdef public bytes data
    cdef bytes _deferred
    cdef public Py_ssize_t at
    cdef public bint decoding, active
    cdef public Py_ssize_t served_to
    cdef readonly bint paused
    cdef object _transport, _unsent_bytes, _write, _is_closing
    cdef int _fd
    cdef int answer(self, AnswerBuffer out) except -1
    cpdef write(self, bytes data)
    cpdef send_deferred(self)
    cdef int send(self, const unsigned char* p, Py_ssize_t count, AnswerBuffer out, bytes data) except -1
