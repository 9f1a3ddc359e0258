from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, find_byte, load_i32, store_i32
from rocketq.kernel.appender cimport APPENDED, Appender
from rocketq.kernel.queue_units cimport QueueTail

cdef class SendRoute:
    cdef readonly bytes topic
    cdef readonly list queues
    cdef readonly int sys_flag
    cdef public long long count, size_bytes

cdef class SendFrames:
    cdef readonly Appender appender
    cdef dict _routes
    cdef SendRoute _last
    cdef bytes _cluster, _before_id, _before_queue, _before_offset, _before_transaction, _before_opaque, _tail, _host_hex
    cdef readonly long long body_bytes_max, frame_bytes_max, taken
    cdef readonly int transactions_since
    cdef object _out, _properties
    cdef unsigned char* _out_p
    cdef unsigned char* _properties_p
    cdef Py_ssize_t _out_len
    cdef public list cold, missed
    cdef int _seen
    cdef long long _code, _opaque, _flag, _version, _queue_id, _sys_flag, _born_ms, _user_flag
    cdef Py_ssize_t _topic_at, _topic_len, _text_at, _text_len, _unique_at, _unique_end
    cdef bint parse_header(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint take_member(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count, long long value) noexcept
    cdef Py_ssize_t parse_fields(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint take_field(self, const unsigned char* p, int letter, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef Py_ssize_t unescape(self, const unsigned char* p) noexcept
    cdef Py_ssize_t edit_properties(self, Py_ssize_t count) noexcept
    cdef bint has_name_before(self, Py_ssize_t until, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef QueueTail find_queue(self, const unsigned char* p)
    cdef bint send(self, const unsigned char* p, Py_ssize_t body_at, Py_ssize_t body_len, bytes born_host, long long now_ms) except -1
    cdef void answer(self)
    cdef Py_ssize_t put_text(self, Py_ssize_t at, bytes text) noexcept
    cdef Py_ssize_t put_number(self, Py_ssize_t at, long long value) noexcept
    cdef Py_ssize_t put_hex(self, Py_ssize_t at, long long value) noexcept

cdef Py_ssize_t end_of_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t end_of_number(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef long long number_at(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_plain_number(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bint is_plain_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_cold_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef int hex_digit(int char) noexcept
