from libc.math cimport copysign

from rocketq.kernel.primitives cimport equal_bytes, find_byte

cdef long long I64_MIN, I64_MAX, I64_MIN_TENTH

cpdef enum:
    FALSE = 0
    TRUE = 1
    UNKNOWN = 2
    FAILED = 3

cpdef enum:
    NOTHING = 0
    TRUTH = 1
    INT = 2
    LONG = 3
    DOUBLE = 4
    TEXT = 5

cpdef enum:
    LOAD = 0
    CONSTANT = 1
    NEGATE = 2
    NOT = 3
    CAST = 4
    EQUAL = 5
    COMPARE = 6
    IN = 7
    SEARCH = 8
    AND = 9
    OR = 10
    SKIP_FALSE = 11
    SKIP_TRUE = 12
    SKIP_NULL = 13

cpdef enum:
    LESS = 1
    SAME = 2
    GREATER = 4

cpdef enum:
    ANYWHERE = 0
    AT_START = 1
    AT_END = 2
    ABSENT = 4

cdef enum:
    MISFIT = -2

cdef struct Cell:
    int kind
    long long integer
    double number
    const unsigned char* text
    Py_ssize_t at
    Py_ssize_t end

cdef class FilterProgram:
    cdef readonly tuple names
    cdef readonly int depth
    cdef bytes _pool
    cdef const unsigned char* _texts
    cdef int _names, _length
    cdef long long[::1] _name_at
    cdef int[::1] _code, _kinds
    cdef long long[::1] _integers, _text_at
    cdef double[::1] _numbers
    cdef int run(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
    cdef void find(self, const unsigned char* p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t* spans) noexcept
    cdef int step(self, Cell* cells, int top, int op, int a, int b) noexcept
    cdef void push(self, Cell* cells, int top, int a) noexcept
    cdef bint is_listed(self, Cell* cells, int top, int first, int stop) noexcept
    cdef bint is_found(self, Cell* cells, int top, int a, int how) noexcept

cdef void join(Cell* cells, int left, int deciding) noexcept
cdef int equal(Cell* cells, int left) noexcept
cdef int compare(Cell* cells, int left, int wanted) noexcept
cdef int order(Cell* cells, int left) noexcept
cdef int order_doubles(double a, double b) noexcept
cdef bint convert(Cell* cells, int index, int kind) noexcept
cdef bint to_integer(Cell* cells, int index, bint wide) noexcept
cdef bint to_double(Cell* cells, int index) noexcept
cdef bint is_word_true(const unsigned char* p, Py_ssize_t at, Py_ssize_t end) noexcept
cdef bint slow_integer(Cell* cells, int index, bint wide) noexcept
cdef bint slow_double(Cell* cells, int index) noexcept
