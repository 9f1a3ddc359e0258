from rocketq.kernel.primitives cimport copy_bytes, load_i32

cdef extern from "Python.h":
    bytearray PyByteArray_FromStringAndSize(const char* data, Py_ssize_t count)
    int PyByteArray_Resize(object held, Py_ssize_t count) except -1

cdef class TextColumn:
    cdef readonly bytearray ends, data, valid
    cdef readonly Py_ssize_t nulls, used, rows
    cdef Py_ssize_t _row_room, _byte_room
    cdef int* _ends
    cdef unsigned char* _data
    cdef unsigned char* _valid
    cpdef int begin(self) except -1
    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t bytes_max, Py_ssize_t times) except -1
    cdef int point(self) except -1
    cpdef int finish(self) except -1
    cdef void put(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef void put_nothing(self) noexcept
    cdef void put_id(self, const unsigned char* p, Py_ssize_t host_at, int host_len, long long log_offset) noexcept
    cdef void put_host(self, const unsigned char* p, Py_ssize_t at) noexcept
    cdef void put_number(self, int value) noexcept

cdef bytearray longer(bytearray held, Py_ssize_t used, Py_ssize_t size)
