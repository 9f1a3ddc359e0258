from rocketq.kernel.primitives cimport cut_item, equal_bytes, find_byte, load_i64
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.properties cimport PropertySpans
from rocketq.kernel.records cimport RecordView, BAD_CRC, BAD_LENGTH, END, MESSAGE
from rocketq.kernel.text_column cimport TextColumn, longer

# What fill() is asked for; any of them, or'ed.
cpdef enum:
    TOPIC = 1
    MESSAGE_ID = 2
    TAGS = 4
    KEYS = 8
    BODY = 16
    BORN_HOST = 32
    STORE_HOST = 64
    PROPERTIES = 128
    NUMBERS = 256
    ITEMS_MAX = 32  # properties looked at together
    HIDDEN_BYTES_MAX = 64  # of the names that can be hidden

cdef class RecordRows:
    cdef public object topics, queue_ids
    cdef public long long queue_offset_low, queue_offset_high, store_ms_low, store_ms_high
    cdef public bint check_crc, in_place
    cdef readonly RecordView view
    cdef PropertySpans _spans
    cdef bytes _last_topic
    cdef bint _last_chosen
    cdef readonly TextColumn topic, message_id, tags, keys, body, born_host, store_host, names, values
    cdef readonly bytearray map_ends, ints, longs
    cdef bytearray _items_held, _hidden_ends_held
    cdef unsigned long long _hidden_starts
    cdef bytes _hidden
    cdef int* _items
    cdef int* _hidden_ends
    cdef const unsigned char* _hidden_names
    cdef int* _map_ends
    cdef int* _ints
    cdef long long* _longs
    cdef MappedBuffer _buffer
    cdef bytearray _starts_held
    cdef long long* _starts
    cdef Py_ssize_t room
    cdef Py_ssize_t _number_room, _map_room
    cdef readonly Py_ssize_t rows, filled, seen, at
    cdef readonly list compressed
    cdef readonly bint has_ipv6
    cdef readonly long long body_bytes, compressed_bytes, topic_bytes, properties_bytes, properties_count
    cdef readonly long long first_store_ms, last_store_ms
    cdef bint is_chosen(self, const unsigned char* p) except -1
    cdef int note(self) except -1
    cdef void parse_row(self, Py_ssize_t number) noexcept
    cpdef int begin(self) except -1
    cpdef int finish(self) except -1
    cdef int reserve(self, int wanted, list bodies, tuple hosts, Py_ssize_t times) except -1
    cdef int reserve_numbers(self, Py_ssize_t rows, Py_ssize_t times) except -1
    cdef int point(self) except -1
    cdef void put_numbers(self, Py_ssize_t row) noexcept
    cdef void put_spans(self, const unsigned char* p, int wanted) noexcept
    cdef void put_properties(self, const unsigned char* p, Py_ssize_t row) noexcept
    cdef bint is_hidden(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t name_len) noexcept
    cdef bint is_item_again(
        self, const unsigned char* p, Py_ssize_t base, int item, int count, Py_ssize_t at, Py_ssize_t end
    ) noexcept

cdef bint is_said_again(
    const unsigned char* p, Py_ssize_t name_at, Py_ssize_t name_len, Py_ssize_t at, Py_ssize_t end
) noexcept
