from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, find_byte, store_i16, store_i32

cpdef enum:
    NO_BODY = 1
    EMPTY_BODY = 2
    BODY_TOO_LARGE = 3
    PROPERTIES_TOO_LONG = 4
    TAGS_SEPARATOR = 5
    KEYS_SEPARATOR = 6
    SHARDING_SEPARATOR = 7
    PROPERTY_NAME = 8
    PROPERTY_SEPARATOR = 9

cdef enum:
    POSITIONS = 32
    PLAIN_NAME = 0
    LEFT_OUT = 1
    TAGS_NAME = 2
    KEYS_NAME = 3
    BAD_NAME = 4

cdef class TextSource:
    cdef object _held
    cdef const int* _ends
    cdef const unsigned char* _data
    cdef const unsigned char* _valid
    cdef Py_ssize_t _offset
    cdef Py_ssize_t start(self, Py_ssize_t row) noexcept
    cdef Py_ssize_t length(self, Py_ssize_t row) noexcept

cdef class NumberSource:
    cdef object _held
    cdef const long long* _numbers
    cdef const unsigned char* _valid
    cdef Py_ssize_t _offset
    cdef long long at(self, Py_ssize_t row, long long otherwise) noexcept

cdef class BatchEncoder:
    cdef public TextSource body, tags, keys, sharding_key
    cdef public NumberSource delay_level, deliver_ms, ordinal
    cdef TextSource _maps, _names, _values
    cdef bytes _id_head, _origin, _constant
    cdef object _left_out
    cdef public long long ordinal_first, sequence, body_bytes_max, properties_bytes_max
    cdef readonly bytearray out
    cdef unsigned char* _out
    cdef Py_ssize_t _room
    cdef readonly Py_ssize_t used, count
    cdef readonly list faults
    cdef Py_ssize_t _known_at[32]
    cdef Py_ssize_t _known_len[32]
    cdef int _known_kind[32]
    cdef Py_ssize_t _body_len, _properties_len
    cdef long long ordinal_of(self, Py_ssize_t row) noexcept
    cdef int measure(self, Py_ssize_t row) except -1
    cdef Py_ssize_t measure_map(self, Py_ssize_t row) except -100
    cdef int kind_of(self, Py_ssize_t position, Py_ssize_t at, Py_ssize_t count) except -1
    cdef int classify(self, Py_ssize_t at, Py_ssize_t count) except -1
    cdef bint is_kept(self, int kind, Py_ssize_t row) noexcept
    cdef int write(self, Py_ssize_t row) except -1
    cdef int write_map(self, Py_ssize_t row) except -1
    cdef void put(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef void put_text(self, bytes text) noexcept
    cdef void put_item(self, bytes name, TextSource source, Py_ssize_t row) noexcept
    cdef void put_number_item(self, bytes name, long long value) noexcept
    cdef void put_number(self, long long value) noexcept
    cdef void put_sequence(self) noexcept

cdef Py_ssize_t digits_of(long long value) noexcept
cdef bint is_clean(TextSource source, Py_ssize_t row) noexcept
