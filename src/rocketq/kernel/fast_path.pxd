from rocketq.kernel.admission cimport Generation
from rocketq.kernel.primitives cimport send_now
from rocketq.kernel.answers cimport AnswerBuffer
from rocketq.kernel.fast_frames cimport FastFrames
from rocketq.kernel.fast_pulls cimport FastPulls
from rocketq.kernel.fast_sends cimport FastSends

cpdef enum:
    READ_BYTES_MAX = 192 << 10  # a longer read, and all after it, goes to the connection
    DEFERRED_BYTES_MAX = 4 << 10  # longer answers are written at once

cdef class FastPath:
    cdef readonly FastFrames frames
    cdef readonly Generation generation
    cdef FastSends _sends
    cdef FastPulls _pulls
    cdef object _acquire, _release, _stored, _now_ns, _monotonic_ns, _call_soon, _finish_turn, _waiting
    cdef object _dispatcher
    cdef list _listeners
    cdef long long _allowed, _allowed_to_ns
    cdef public long long sends_from_ms
    cdef public bint may_send, scoped, finishing, stored
    cdef readonly list held
    cdef list _deferring
    cdef FastConnection _last
    cdef long long[50] _took
    cdef long long[5] _took_ns
    cdef int observe(self, long long took_ns) noexcept
    cdef bint is_alone(self, FastConnection connection)
    cdef int defer(self, FastConnection connection) except -1
    cdef void forget(self, FastConnection connection)
    cpdef bint is_allowed(self) except -1
    cdef Py_ssize_t serve(self, FastConnection connection, bytes data) except -2
    cdef Py_ssize_t run(self, FastConnection connection, bytes data, Py_ssize_t at) except -2
    cdef int note(self, FastConnection connection, long long before) except -1
    cpdef bint has_waiters(self) except -1

cdef class FastConnection:
    cdef FastPath _path
    cdef readonly long long number
    cdef readonly long long messages_in, bytes_in, messages_out, bytes_out
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

cdef int time_class(long long took_ns) noexcept
