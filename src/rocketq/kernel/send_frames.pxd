from rocketq.kernel.primitives cimport load_i32
from rocketq.kernel.answers cimport AnswerBuffer, AnswerTemplate
from rocketq.kernel.appender cimport APPENDED, Appender
from rocketq.kernel.frame_header cimport FrameHeader
from rocketq.kernel.frame_ahead cimport FrameAhead
from rocketq.kernel.queue_places cimport QueuePlaces
from rocketq.kernel.queue_units cimport QueueTail
from rocketq.kernel.send_properties cimport SendProperties
from rocketq.kernel.send_request cimport SendRequest

cpdef enum:
    IDS_BYTES_MAX = 8 << 20
    RECORD_BYTES_MORE = 123

cdef class SendRoute:
    cdef readonly bytes topic
    cdef readonly list queues
    cdef readonly int sys_flag
    cdef public long long count, size_bytes, times
    cdef public bint noted

cdef class SendFrames:
    cdef readonly Appender appender
    cdef readonly AnswerBuffer out, held
    cdef readonly QueuePlaces places
    cdef public bint open, durable, indexed
    cdef public long long body_bytes_max, held_max, held_count
    cdef readonly long long taken
    cdef readonly int transactions_since
    cdef public list missed, grown
    cdef dict _routes
    cdef SendRoute _route
    cdef SendRequest _request
    cdef SendProperties _properties
    cdef bytes _host_hex
    cdef Py_ssize_t _host_len
    cdef tuple _templates
    cdef bint look(self, FrameAhead frame, const unsigned char* p) noexcept
    cdef bint take(self, FrameAhead frame, const unsigned char* p, bytes born_host, long long now_ms) except -1
    cdef QueueTail find_queue(self, FrameAhead frame, const unsigned char* p)
    cdef QueueTail ask_routes(self, FrameAhead frame, const unsigned char* p)
    cdef bint store_one(
        self, QueueTail queue, const unsigned char* p, Py_ssize_t body_at, Py_ssize_t body_len, bytes born_host, long long now_ms
    ) except -1
    cdef bint store_batch(
        self, QueueTail queue, const unsigned char* p, Py_ssize_t body_at, Py_ssize_t body_len, bytes born_host, long long now_ms
    ) except -1
    cdef int note(self, SendRoute route) except -1
    cdef int answer(self, FrameHeader header) except -1
    cdef void put_ids(self, AnswerBuffer out) noexcept
