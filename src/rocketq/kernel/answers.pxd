from rocketq.kernel.primitives cimport copy_bytes, store_hex, store_i32

cdef class AnswerTemplate:
    cdef readonly bint binary
    cdef readonly int pieces
    cdef readonly Py_ssize_t size, ext_at
    cdef bytes _text
    cdef const unsigned char* p
    cdef Py_ssize_t cuts[12]

cdef class AnswerBuffer:
    cdef readonly Py_ssize_t length
    cdef object _memory
    cdef unsigned char* p
    cdef Py_ssize_t _room, _start, _at, _slot
    cdef int _piece
    cdef AnswerTemplate _template
    cdef void clear(self)
    cdef void reserve(self, Py_ssize_t count)
    cdef void begin(self, AnswerTemplate template, Py_ssize_t more)
    cdef void put_piece(self) noexcept
    cdef void open_slot(self) noexcept
    cdef void close_slot(self) noexcept
    cdef void put_bytes(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef void put_number(self, long long value) noexcept
    cdef void put_hex(self, long long value) noexcept
    cdef void put_field(self, long long value) noexcept
    cdef void finish(self, long long opaque, Py_ssize_t body_len) noexcept
