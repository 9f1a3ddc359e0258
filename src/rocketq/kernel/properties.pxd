from rocketq.kernel.primitives cimport cut_item, equal_bytes, signed_i32, wrap_u32

cdef bytes TAGS, KEYS, DELAY, UNIQ_KEY

cdef unsigned int java_hash(unsigned int seed, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept

cdef class PropertySpans:
    cdef Py_ssize_t tags_at, tags_end, keys_at, keys_end, unique_at, unique_end, delay_at, delay_end
    cdef void scan(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef void clear(self) noexcept
    cdef void note(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t name_end, Py_ssize_t item_end) noexcept
    cdef long long delay_level(self, const unsigned char* p) noexcept
