from rocketq.kernel.primitives cimport (
    body_crc, copy_bytes, find_i32, load_i16, load_i32, load_i64, skip_zeros, store_i16, store_i32, store_i64,
)
from rocketq.kernel.buffers cimport MappedBuffer

# What parse() finds. The negative ones are damage; of BAD_CRC everything but the body can be trusted.
cpdef enum:
    END = 0
    MESSAGE = 1
    BLANK = 2
    BAD_MAGIC = -1
    BAD_LENGTH = -2
    BAD_OFFSET = -3
    BAD_CRC = -4

cpdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    MAGIC_BLANK = -875286124

cdef class RecordView:
    cdef readonly int size, magic, crc, queue_id, flag, sys_flag, reconsume_times
    cdef readonly long long queue_offset, log_offset, born_ms, store_ms, prepared_offset
    cdef readonly Py_ssize_t born_host_at, born_host_len, store_host_at, store_host_len
    cdef readonly Py_ssize_t body_at, body_len, topic_at, topic_len, properties_at, properties_len
    cdef int parse(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, long long log_offset, bint check_crc) noexcept

cdef Py_ssize_t record_size(Py_ssize_t body_len, Py_ssize_t topic_len, Py_ssize_t properties_len, int sys_flag) noexcept
cdef Py_ssize_t next_record(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t stop, Py_ssize_t end, long long base, RecordView view
) noexcept
