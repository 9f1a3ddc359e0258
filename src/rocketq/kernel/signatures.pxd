from rocketq.kernel.binary_header cimport is_ascii, parse_binary_header
from rocketq.kernel.frame_header cimport FrameHeader
from rocketq.kernel.json_header cimport parse_json_header
from rocketq.kernel.json_text cimport unescape_text
from rocketq.kernel.primitives cimport copy_bytes, equal_bytes, hmac_sha1, is_base64_of, load_i32, prepare_hmac

cpdef enum:
    SIGNED_FIELDS_MAX = 24
    VALUES_BYTES_MAX = 80 << 10
    KEY_BYTES = 64
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
    cdef FrameHeader _header
    cdef int _order[24]
    cdef int _count
    cdef Account account_of(self, FrameHeader header, const unsigned char* p, Accounts accounts)
    cdef bint verify(
        self, FrameHeader header, const unsigned char* p, Py_ssize_t body_at, Py_ssize_t body_len, Account account
    ) noexcept
    cdef int sort_fields(self, FrameHeader header, const unsigned char* p) noexcept
    cdef Py_ssize_t join_values(self, FrameHeader header, const unsigned char* p) noexcept

cdef bint parse_header(FrameHeader header, const unsigned char* p, int form, Py_ssize_t end) noexcept
cdef bint is_signed_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef int compare_names(
    const unsigned char* p, Py_ssize_t at, Py_ssize_t count, Py_ssize_t other_at, Py_ssize_t other_count
) noexcept
