from rocketq.kernel.admission cimport SendGrant
from rocketq.kernel.answers cimport AnswerBuffer, AnswerTemplate
from rocketq.kernel.appender cimport APPENDED, NO_QUEUE_ROOM, Appender
from rocketq.kernel.new_record cimport NewRecord
from rocketq.kernel.parsed_frame cimport ParsedFrame
from rocketq.kernel.primitives cimport load_i32
from rocketq.kernel.queue_cache cimport QueueCache
from rocketq.kernel.queue_units cimport QueueTail
from rocketq.kernel.request_view cimport RequestView
from rocketq.kernel.send_properties cimport SendProperties
from rocketq.kernel.send_request cimport SendRequest

cpdef enum:
    IDS_BYTES_MAX = 8 << 20  # of the ids in the answer to a batch
    RECORD_BYTES_MORE = 123  # what a record needs at most beside topic, properties and body, and the end of its file
    GRANTS_MAX = 50_000  # clients choose their groups

cdef class FastSends:
    cdef readonly Appender appender
    cdef readonly AnswerBuffer out, held
    cdef readonly QueueCache cache
    cdef public bint open, durable, indexed, short_of_room
    cdef public long long body_bytes_max, held_max, held_count
    cdef public long long generation
    cdef readonly long long taken, taken_bytes
    cdef readonly int transactions_since
    cdef public list missed, grown
    cdef dict _grants
    cdef SendGrant _grant
    cdef SendRequest _request
    cdef SendProperties _properties
    cdef NewRecord _record
    cdef bytes _host_hex
    cdef Py_ssize_t _host_len
    cdef bint parse(self, ParsedFrame frame, const unsigned char* p) noexcept
    cdef bint execute(self, ParsedFrame frame, const unsigned char* p, bytes born_host, long long now_ms) except -1
    cdef bint find_grant(self, ParsedFrame frame, const unsigned char* p) except -1
    cdef bint store_one(self, QueueTail queue) except -1
    cdef bint store_batch(self, QueueTail queue) except -1
    cdef bint is_appended(self, int state) noexcept
    cdef QueueTail find_delay_queue(self, ParsedFrame frame, const unsigned char* p, int level)
    cdef int note(self, SendGrant grant, bint delayed) except -1
    cdef int answer(self, RequestView header) except -1
    cdef void put_ids(self, AnswerBuffer out) noexcept

cdef tuple key_of(ParsedFrame frame, const unsigned char* p, SendRequest request)
cdef bytes piece_of(const unsigned char* p, Py_ssize_t at, Py_ssize_t count)
