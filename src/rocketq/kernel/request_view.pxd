from cpython.bytearray cimport PyByteArray_AS_STRING
from rocketq.kernel.primitives cimport copy_bytes, end_of_plain, equal_bytes, load_i16, load_i32

ctypedef const char* ConstText

cdef extern from "Python.h":
    object PyUnicode_DecodeUTF8(const char* text, Py_ssize_t size, const char* errors)

# Members of a JSON header in the order Java writes them, and fields that any request may have.
cpdef enum:
    CODE = 1
    EXT_FIELDS = 2
    FLAG = 3
    LANGUAGE = 4
    OPAQUE = 5
    REMARK = 6
    SERIALIZE_TYPE = 7
    VERSION = 8
    ACCESS_KEY = 20  # behind the numbers of the fields of each request
    SIGNATURE = 21
    SECURITY_TOKEN = 22

cdef class RequestView:
    cdef readonly bint binary
    cdef bint bad, plain, remark_escaped
    cdef readonly int count, language
    cdef readonly long long code, opaque, flag, version
    cdef unsigned long long members
    cdef readonly Py_ssize_t body_at, end
    cdef Py_ssize_t language_at, language_len, remark_at, remark_len
    cdef int name_at[48]
    cdef int name_len[48]
    cdef int value_at[48]
    cdef int value_len[48]
    cdef bint escaped[48]
    cdef bint wide[48]
    cdef bint null[48]
    cdef void clear(self, bint binary) noexcept
    cdef bint parse(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint parse_at(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint parse_binary(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint parse_json(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef Py_ssize_t parse_member(self, const unsigned char* p, int member, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint put_number(self, int member, long long value) noexcept
    cdef Py_ssize_t parse_fields(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef void mark_text(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef bint add(self, Py_ssize_t name_at, Py_ssize_t name_len, Py_ssize_t value_at, Py_ssize_t value_len) noexcept
    cdef bint is_named(self, const unsigned char* p, int index, const unsigned char* name, Py_ssize_t name_len) noexcept
    cdef bint has_text(self, const unsigned char* p, int index, const unsigned char* text, Py_ssize_t text_len) noexcept
    cdef bint is_simple(self, int index) noexcept
    cdef long long number(self, const unsigned char* p, int index) noexcept
    cdef long long small_number(self, const unsigned char* p, int index) noexcept
    cpdef command_parts(self, bytes data)
    cdef tuple texts(self, const unsigned char* p)

cdef text_of(const unsigned char* p, Py_ssize_t at, Py_ssize_t count, bint escaped)
cdef decode_utf8(const unsigned char* p, Py_ssize_t at, Py_ssize_t count)
cdef Py_ssize_t unescape_json(
    unsigned char* out, Py_ssize_t size, const unsigned char* p, Py_ssize_t at, Py_ssize_t end
) noexcept
cdef Py_ssize_t put_utf8(unsigned char* out, Py_ssize_t at, int char) noexcept
cdef int hex_number(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef int credential_field(RequestView view, const unsigned char* p, int index) noexcept
cdef Py_ssize_t skip_blank(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t end_of_name(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t colon_after(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t end_of_text(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint has_backslash(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_null(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef Py_ssize_t end_of_word(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef int member_of(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
cdef bint is_ascii(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef long long number_at(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_number(const unsigned char* p, Py_ssize_t at, Py_ssize_t count) noexcept
