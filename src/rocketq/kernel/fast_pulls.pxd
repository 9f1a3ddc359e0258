from rocketq.kernel.admission cimport PullGrant
from rocketq.kernel.answers cimport AnswerBuffer, AnswerTemplate
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.request_view cimport RequestView
from rocketq.kernel.parsed_frame cimport ParsedFrame
from rocketq.kernel.pull_request cimport PullRequest
from rocketq.kernel.queue_units cimport QueueTail
from rocketq.kernel.reader cimport READ_DONE, TAKEN_MAX, LogMap, QueueRead, ReadLimits, ReadRequest

cdef class PullLimits:
    cdef public long long count_max, bytes_max
    cdef public long long asked_count_max, asked_bytes_max, memory_bytes, scan_min
    cdef public bint check_crc

cdef class FastPulls:
    cdef readonly AnswerBuffer out
    cdef public bint open
    cdef public long long gone_until, log_end
    cdef public list missed, served
    cdef public long long generation
    cdef readonly long long taken, given, given_bytes
    cdef public PullLimits limits
    cdef readonly int flags_since
    cdef readonly long long answer_bytes_max
    cdef LogMap _log
    cdef object _visible_to
    cdef tuple _templates
    cdef dict _grants
    cdef PullRequest _request
    cdef QueueRead _found
    cdef ReadLimits _read_limits
    cdef ReadRequest _read_request
    cdef bint execute(self, ParsedFrame frame, const unsigned char* p, long long log_end, long long now_ms) except -1
    cdef PullGrant find_grant(self, ParsedFrame frame, const unsigned char* p)
    cdef bint read(self, QueueTail queue, object tag_codes, long long low, long long high, long long log_end) except -1
    cdef void set_limits(self, long long log_end) noexcept
    cdef int note(self, PullGrant grant) except -1
    cdef void answer(self, RequestView header, PullGrant grant, long long low, long long high)
