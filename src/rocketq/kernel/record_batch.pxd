from rocketq.kernel.primitives cimport equal_bytes, find_byte, load_i16, load_i32, load_i64

cdef extern from *:
    """
    /* Calls tp_new with no arguments: what cls.__new__(cls) does, without a lookup and a tuple. The instance is not
       tracked by the garbage collector: a backlog of them would make it run all the time, and none leads back to
       itself. */
    static PyObject* new_instance(PyObject* type) {
        static PyObject* nothing = NULL;
        PyObject* made;
        if (nothing == NULL && (nothing = PyTuple_New(0)) == NULL) return NULL;
        made = ((PyTypeObject*)type)->tp_new((PyTypeObject*)type, nothing, NULL);
        if (made != NULL && PyObject_IS_GC(made)) PyObject_GC_UnTrack(made);
        return made;
    }
    """
    object new_instance(object type)

cdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    HEAD_BYTES = 48  # up to the born host
    COMPRESSED = 1
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32

cdef class MessageView:
    cdef public object queue, topic
    cdef public long long queue_offset
    cdef public int reconsume_times
    cdef readonly int stored_bytes, queue_id, flag, sys_flag, body_bytes
    cdef readonly long long log_offset, born_ms, store_ms
    cdef bytes _data
    cdef Py_ssize_t _body_at, _properties_at, _properties_end, _born_host_at, _store_host_at
    cdef int _born_host_bytes, _store_host_bytes
    cdef public object _body, _fault, _id, _properties
    cdef Py_ssize_t parse(self, bytes data, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept

cdef class RecordBatch:
    cdef readonly bytes data
    cdef readonly Py_ssize_t at, end, fault_at
    cdef readonly Py_ssize_t count, body_bytes
    cdef readonly long long first_offset, last_offset
    cdef readonly object queue, topic, tags
    cdef object _view_type
    cdef int scan(self) except -1
    cdef bint is_wanted(self, MessageView view) except -1

cdef bytes last_property(bytes data, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, bytes name)
