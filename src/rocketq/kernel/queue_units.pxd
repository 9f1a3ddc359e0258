from rocketq.kernel.primitives cimport load_i32, load_i64, signed_i32, store_i32, store_i64, wrap_i64
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.properties cimport PropertySpans, java_hash

cdef class QueueTail:
    cdef readonly bytes topic
    cdef readonly int queue_id
    cdef readonly bint scheduled
    cdef unsigned int key_seed
    cdef readonly object owner
    cdef readonly MappedBuffer units
    cdef unsigned char* p
    cdef readonly long long file_first, file_end
    cdef public long long room_end
    cdef public long long next_offset
    cdef public bint touched
    cdef public long long log_end
    cdef public object extensions
    cdef public bint extends
    cdef void put(self, long long log_offset, int size, long long tags_code) noexcept
    cdef long long extend(
        self, long long tags_code, long long store_ms, const unsigned char* properties, Py_ssize_t at, Py_ssize_t length,
    ) except? -1
    cdef bint agrees(self, long long address, long long tags_code, long long store_ms, bint distrust) except -1

cdef bint is_address(long long tags_code) noexcept
cdef long long tags_code_of(QueueTail queue, PropertySpans spans, const unsigned char* p, long long store_ms, list delays_ms)
