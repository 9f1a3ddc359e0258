cdef class NewRecord:
    cdef const unsigned char* body
    cdef const unsigned char* properties
    cdef Py_ssize_t body_at, body_len, properties_at, properties_len
    cdef int flag, sys_flag, reconsume_times
    cdef long long born_ms, store_ms, prepared_offset
    cdef bytes born_host
    cdef void set_body(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef void set_properties(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
    cdef void set_origin(self, long long born_ms, bytes born_host, long long store_ms, int reconsume_times) noexcept
