from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from rocketq.kernel.primitives cimport copy_bytes, find_byte, load_i32, store_i16, store_i32
from rocketq.kernel.record_batch cimport new_instance

cdef extern from *:
    """
    /* The bytes of an exact str of ASCII without control characters; NULL for any other object. */
    static const unsigned char* plain_text(PyObject* text, int blanks) {
        const unsigned char* p;
        Py_ssize_t at, count;
        if (!PyUnicode_CheckExact(text) || !PyUnicode_IS_ASCII(text)) return NULL;
        p = (const unsigned char*)PyUnicode_1BYTE_DATA(text);
        count = PyUnicode_GET_LENGTH(text);
        for (at = 0; at < count; at++)
            if (p[at] < 32 + !blanks || p[at] > 126) return NULL;
        return p;
    }
    """
    const unsigned char* plain_text(object text, bint blanks)

cdef class MessageFields:
    cdef readonly object topic, body, tag, keys, flag, delay_level, delay_ms, deliver_at_ms, wait
    cdef object _properties
    cpdef bint is_plain(self)

cdef class UniqueIdSource:
    cdef unsigned char _head[64]
    cdef int _head_bytes
    cdef readonly int id_bytes
    cdef int _count
    cdef public long long start_ms, end_ms
    cdef void put(self, unsigned char* p, Py_ssize_t at, long long now_ms) noexcept

cdef class SendResultFields:
    cdef public object status, queue, transaction_id, recall_handle, region, trace_on
    cdef public long long queue_offset
    cdef object _message_id, _offset_message_id
    cdef SendBatch _batch
    cdef Py_ssize_t _index

cdef class SendBatch:
    cdef readonly bytearray out
    cdef unsigned char* _p
    cdef Py_ssize_t _room
    cdef readonly Py_ssize_t used, body_bytes
    cdef readonly list starts, waiters
    cdef UniqueIdSource _ids
    cdef Py_ssize_t _body_bytes_max, _properties_bytes_max
    cdef public object deadline_ms
    cdef object _offset_ids
    cdef int make_room(self, Py_ssize_t count) except -1
    cdef void put(self, const unsigned char* p, Py_ssize_t count) noexcept
    cdef Py_ssize_t keys_bytes(self, tuple keys) except -2
    cdef int write(
        self, bytes body, int flag, const unsigned char* tag, Py_ssize_t tag_bytes, tuple keys, Py_ssize_t keys_bytes,
        long long now_ms
    ) except -1
    cdef Py_ssize_t properties_at(self, Py_ssize_t index) noexcept
    cdef offset_id(self, Py_ssize_t index)
    cdef SendResultFields one_result(
        self, object result_type, Py_ssize_t index, object status, object queue, long long queue_offset, object region,
        object trace_on
    )

cdef bytes piece(const unsigned char* p, Py_ssize_t at, Py_ssize_t count)
