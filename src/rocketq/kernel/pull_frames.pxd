from rocketq.kernel.answers cimport AnswerBuffer, AnswerTemplate
from rocketq.kernel.buffers cimport MappedBuffer
from rocketq.kernel.frame_header cimport FrameHeader
from rocketq.kernel.pull_request cimport PullRequest
from rocketq.kernel.queue_units cimport QueueTail
from rocketq.kernel.reader cimport READ_DONE, TAKEN_MAX, LogMap, QueueRead, ReadLimits
from rocketq.kernel.records cimport RecordView

cdef class PullLimits:
    cdef public long long count_max, bytes_max
    cdef public long long asked_count_max, asked_bytes_max, memory_bytes, scan_min
    cdef public bint check_crc

cdef class PullRoute:
    cdef readonly bytes key
    cdef readonly list queues
    cdef readonly object tag_codes
    cdef object _is_current
    cdef readonly long long version
    cdef readonly long long broker_id, slow_broker_id, topic_sys_flag, group_sys_flag
    cdef readonly object owner
    cdef public dict positions, commits
    cdef public long long count, size_bytes, times
    cdef public bint noted

cdef class PullFrames:
    cdef readonly AnswerBuffer out
    cdef public bint open
    cdef public long long gone_until, log_end
    cdef public list missed, served
    cdef readonly long long taken
    cdef public PullLimits limits
    cdef readonly int flags_since
    cdef readonly long long answer_bytes_max
    cdef LogMap _log
    cdef object _visible_to
    cdef tuple _templates
    cdef dict _routes
    cdef PullRequest _request
    cdef QueueRead _found
    cdef ReadLimits _read_limits
    cdef RecordView _view
    cdef bint take(self, FrameHeader header, const unsigned char* p, Py_ssize_t body_len, long long log_end) except -1
    cdef PullRoute find_route(self, const unsigned char* p)
    cdef bint read(self, PullRoute route, QueueTail queue, long long low, long long high, long long log_end) except -1
    cdef void set_limits(self, long long log_end) noexcept
    cdef void note(self, PullRoute route)
    cdef void answer(self, FrameHeader header, PullRoute route, long long low, long long high)
