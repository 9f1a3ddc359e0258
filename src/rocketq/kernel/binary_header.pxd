from rocketq.kernel.primitives cimport load_i16, load_i32
from rocketq.kernel.frame_header cimport FrameHeader

cdef bint parse_binary_header(FrameHeader header, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint is_ascii(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
