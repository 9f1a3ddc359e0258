from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, hmac_sha1, is_base64_of, prepare_hmac
from rocketq.kernel.request_view cimport RequestView, is_ascii, unescape_json

cpdef enum:
    SIGNED_FIELDS_MAX = 48  # as many as a header may have
    VALUES_BYTES_MAX = 80 << 10  # of all fields; properties alone may have 64 KiB
    KEY_BYTES = 64  # of a prepared secret
    SIGNATURE_BYTES = 28

cdef class Account:
    cdef readonly bytes access_key
    cdef readonly object owner
    cdef bytearray _memory
    cdef unsigned char* _keys
    cdef int _secret_count
    cdef int prepare(self, int number, bytes secret) except -1

cdef class Accounts:
    cdef dict _by_key
    cdef Account _last
    cdef Account find(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t count)

cdef class SignatureCheck:
    cdef bytearray _memory
    cdef unsigned char* _text
    cdef unsigned char _digest[20]
    cdef RequestView _header
    cdef int _order[48]
    cdef int _count
    cdef Account account_of(self, RequestView header, const unsigned char* p, Accounts accounts)
    cdef bint verify(self, RequestView header, const unsigned char* p, Account account) noexcept
    cdef int sort_fields(self, RequestView header, const unsigned char* p) noexcept
    cdef Py_ssize_t join_values(self, RequestView header, const unsigned char* p) noexcept

cdef bint is_signed_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef int compare_names(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t count, Py_ssize_t other_at, Py_ssize_t other_count
) noexcept
