from rocketq.kernel.primitives cimport copy_bytes, cut_item, equal_bytes, find_byte, load_i32, load_i64
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.properties cimport PropertySpans
from rocketq.kernel.records cimport RecordView, BAD_CRC, BAD_LENGTH, END, MESSAGE

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char* data, Py_ssize_t count)
    int PyByteArray_Resize(object held, Py_ssize_t count) except -1

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
    ITEMS_MAX = 32
    HIDDEN_BYTES_MAX = 64

cdef class TextColumn:
    cdef readonly bytearray ends, data, valid
    cdef readonly Py_ssize_t nulls, used, rows
    cdef int* _ends
    cdef unsigned char* _data
    cdef unsigned char* _valid
    cdef int finish(self) except -1
    cdef void put(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef void put_nothing(self) noexcept
    cdef void put_id(self, const unsigned char* p, Py_ssize_t host_at, int host_len, long long log_offset) noexcept
    cdef void put_host(self, const unsigned char* p, Py_ssize_t at) noexcept
    cdef void put_number(self, int value) noexcept

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
    cdef readonly Py_ssize_t rows, seen, at
    cdef readonly list compressed
    cdef readonly bint has_ipv6
    cdef readonly long long body_bytes, compressed_bytes, topic_bytes, properties_bytes, properties_count
    cdef readonly long long first_store_ms, last_store_ms
    cdef bint is_chosen(self, const unsigned char* p) except -1
    cdef int note(self) except -1
    cdef void parse_row(self, Py_ssize_t number) noexcept
    cdef int begin(self, int wanted, list bodies) except -1
    cdef void put_numbers(self, Py_ssize_t row) noexcept
    cdef void put_spans(self, const unsigned char* p, int wanted) noexcept
    cdef int finish(self, int wanted) except -1
    cdef void put_properties(self, const unsigned char* p, Py_ssize_t row) noexcept
    cdef bint is_hidden(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t name_len) noexcept
    cdef bint is_item_again(
        self, const unsigned char* p, Py_ssize_t base, int item, int count, Py_ssize_t at, Py_ssize_t end
    ) noexcept

cdef bint is_said_again(
    const unsigned char* p, Py_ssize_t name_at, Py_ssize_t name_len, Py_ssize_t at, Py_ssize_t end
) noexcept
