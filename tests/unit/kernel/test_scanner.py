"""Walking the log: dispatch builds what the append built, again and again, and stops where it must."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.queue_units import SCHEDULE_TOPIC, QueueTail, put_unit_at
from rocketq.kernel.reader import LogMap
from rocketq.kernel.records import BAD_LENGTH, BAD_MAGIC, BLANK, END, MESSAGE
from rocketq.kernel.scanner import Scanner, check_index_units

from .kit import HOST_V6, Fields, MemoryLog, MemoryQueue, props


@dataclass
class Dispatch:
    """A scanner with queues and an index of its own."""

    slots: int = 5
    index_units: int = 50
    queues: dict[tuple[bytes, int], MemoryQueue] = field(default_factory=dict)
    misfits: list[tuple[int, int, int, int]] = field(default_factory=list)
    index_files: list[IndexTail] = field(default_factory=list)
    refuse: frozenset[bytes] = frozenset()

    def __post_init__(self) -> None:
        self.scanner = Scanner(self.resolve, self.misfit, self.roll)
        self.scanner.index = self.roll(None)

    def resolve(self, topic: bytes, queue_id: int) -> QueueTail | None:
        if topic in self.refuse:
            return None
        assert (topic, queue_id) not in self.queues, "a known queue was asked for again"
        self.queues[topic, queue_id] = MemoryQueue(topic, queue_id)
        return self.queues[topic, queue_id].tail

    def misfit(self, tail: QueueTail, queue_offset: int, log_offset: int, size: int, tags_code: int) -> None:
        self.misfits.append((queue_offset, log_offset, size, tags_code))

    def roll(self, full: IndexTail | None) -> IndexTail:
        size = 40 + 4 * self.slots + 20 * self.index_units
        fresh = IndexTail(MappedBuffer(bytearray(size), 0), self.slots, self.index_units)
        if full is not None:
            fresh.preset(full.end_ms, full.end_offset)
        self.index_files.append(fresh)
        return fresh

    def scan(self, log: MemoryLog, at: int = 0, stop: int | None = None) -> int:
        return int(self.scanner.scan(log.segment, at, log.size if stop is None else stop))


def files_of(queue: MemoryQueue) -> dict[int, bytes]:
    return {number: file.bytes_at(0, file.size) for number, file in queue.files.items()}


def index_of(files: list[IndexTail]) -> list[bytes]:
    return [tail.file.bytes_at(0, tail.file.size) for tail in files]


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "topic": st.sampled_from([b"A", b"B", SCHEDULE_TOPIC]),
            "queue_id": st.integers(0, 3),
            "body": st.binary(max_size=20),
            "sys_flag": st.sampled_from([0, 0x4, 0x8, 0xC, 0x301]),
            "properties": st.sampled_from(
                [b"", props(KEYS="a b"), props(UNIQ_KEY="u", TAGS="T"), props(DELAY="2", TAGS="X", KEYS="k")]
            ),
            "store_ms": st.integers(1_600_000_000_000, 1_600_000_100_000),
            "born_host": st.sampled_from([HOST_V6, HOST_V6[12:]]),
        }
    ),
    max_size=25,
)


def written_log(messages: list[dict[str, object]], *, index_units: int = 50) -> MemoryLog:
    log = MemoryLog(slots=5, index_units=index_units)
    log.appender.delays_ms = [1_000, 5_000]
    for message in messages:
        rest = {name: value for name, value in message.items() if name not in ("topic", "queue_id")}
        log.append(log.queue(message["topic"], message["queue_id"]), **rest)  # type: ignore[arg-type]
    return log


@given(MESSAGES, st.integers(4, 50), st.data())
def test_dispatch_builds_what_the_append_built(
    messages: list[dict[str, object]], index_units: int, data: st.DataObject
) -> None:
    """Goal: queues and index rebuilt from the log are byte for byte those written with it, in one go or in pieces."""
    log = written_log(messages, index_units=index_units)
    dispatch = Dispatch(index_units=index_units)
    dispatch.scanner.delays_ms = [1_000, 5_000]
    at = 0
    while at < log.appender.position:
        stop = data.draw(st.integers(at + 1, log.appender.position))
        assert dispatch.scan(log, at, stop) == MESSAGE
        at = dispatch.scanner.at
    grown = {key: queue for key, queue in log.queues.items() if queue.files}
    assert {key: files_of(queue) for key, queue in dispatch.queues.items()} == {
        key: files_of(queue) for key, queue in grown.items()
    }
    assert index_of(dispatch.index_files) == index_of(log.index_files)
    assert dispatch.misfits == []
    assert dispatch.scanner.records == len(messages)


@given(MESSAGES)
def test_dispatching_again_changes_nothing(messages: list[dict[str, object]]) -> None:
    """Goal: what is there already stays as it is; known records are misfits for their owner to judge."""
    log = written_log(messages)
    dispatch = Dispatch()
    dispatch.scan(log)
    before = {key: files_of(queue) for key, queue in dispatch.queues.items()}, index_of(dispatch.index_files)
    dispatch.scan(log)
    assert ({key: files_of(queue) for key, queue in dispatch.queues.items()}, index_of(dispatch.index_files)) == before
    queued = [message for message in messages if message["sys_flag"] not in (0x4, 0xC)]
    assert len(dispatch.misfits) == len(queued)


def test_units_that_are_there_already_are_taken_over() -> None:
    """Goal: recovery walks the log over queue files that survived: equal units stay, empty ones are filled."""
    log = written_log([{"topic": b"A", "queue_id": 0, "properties": props(TAGS="T")}] * 5)
    queue = log.queue(b"A", 0)
    before = files_of(queue)
    put_unit_at(queue.file_of(2), 2, 0, 0, 0)
    queue.tail.detach()
    queue.tail.next_offset = queue.tail.log_end = 0
    queue.tail.touched = False
    dispatch = Dispatch()
    dispatch.scanner.resolve = lambda topic, queue_id: queue.tail
    dispatch.scan(log)
    assert files_of(queue) == before
    assert (queue.tail.next_offset, queue.tail.log_end) == (5, log.appender.end)
    assert (dispatch.misfits, dispatch.scanner.touched) == ([], [queue.tail])


def test_unit_that_says_something_else_is_for_the_owner_to_judge() -> None:
    """Goal: the kernel overwrites no unit that another message may own."""
    log = written_log([{"topic": b"A", "queue_id": 0}] * 2)
    queue, size = log.queue(b"A", 0), log.appender.size
    put_unit_at(queue.file_of(1), 1, 7, 7, 7)
    before = files_of(queue)
    queue.tail.next_offset = 0
    dispatch = Dispatch()
    dispatch.scanner.resolve = lambda topic, queue_id: queue.tail
    dispatch.scan(log)
    assert dispatch.misfits == [(1, size, size, 0)]
    assert files_of(queue) == before


def test_comparing_writes_nothing_and_tells_what_differs() -> None:
    """Goal: a check of a closed store finds a wrong unit, counts the keys, and leaves both as they are."""
    log = written_log([{"topic": b"A", "queue_id": 0, "properties": props(UNIQ_KEY="u", KEYS=" a  b ")}] * 3)
    queue = log.queue(b"A", 0)
    size = log.appender.size
    put_unit_at(queue.file_of(1), 1, 7, 7, 7)
    before = files_of(queue)
    queue.tail.next_offset = 0
    dispatch = Dispatch()
    dispatch.scanner.resolve = lambda topic, queue_id: queue.tail
    dispatch.scanner.compare_only = True
    dispatch.scan(log)
    assert dispatch.misfits[0] == (1, size, size, 0)
    assert files_of(queue) == before
    assert dispatch.scanner.keys == 9
    unkeyed = Dispatch()
    unkeyed.scanner.compare_only = True
    unkeyed.scan(written_log([{"topic": b"A", "queue_id": 0, "properties": props(UNIQ_KEY="", KEYS=" ")}]))
    assert unkeyed.scanner.keys == 0
    assert dispatch.index_files[0].count == 1


def test_first_record_with_keys_behind_a_boundary_is_told() -> None:
    """Goal: gaps between index files are found while the log is walked."""
    log = written_log(
        [{"topic": b"A", "queue_id": 0, "properties": props(KEYS="k") if number % 2 else b""} for number in range(6)]
    )
    offsets = [log.queue(b"A", 0).unit(number)[0] for number in range(6)]
    dispatch, crossed = Dispatch(), []

    def cross(log_offset: int) -> None:
        crossed.append(log_offset)
        dispatch.scanner.boundary = (1 << 63) - 1

    dispatch.scanner.cross, dispatch.scanner.boundary = cross, offsets[1]
    dispatch.scan(log)
    assert crossed == [offsets[3]]


def test_keys_before_a_failure_are_in_the_index() -> None:
    """Goal: keys are added some at a time, and all of them before anybody else may look, whatever ends the walk."""
    log = written_log([{"topic": topic, "queue_id": 0, "properties": props(KEYS="k")} for topic in (b"A", b"A", b"B")])
    dispatch, whole = Dispatch(), written_log([{"topic": b"A", "queue_id": 0, "properties": props(KEYS="k")}] * 2)

    def resolve(topic: bytes, queue_id: int) -> QueueTail | None:
        if topic == b"B":
            raise OSError("no room for another queue")
        return Dispatch.resolve(dispatch, topic, queue_id)

    dispatch.scanner.resolve = resolve
    with pytest.raises(OSError, match="no room"):
        dispatch.scan(log)
    assert index_of(dispatch.index_files) == index_of(whole.index_files)


@pytest.mark.parametrize("torn", [b"A\x01x\x00", bytes(5), b"A\x01" + bytes(1_100) + b"x\x02"])
def test_torn_properties_end_a_distrustful_walk(torn: bytes) -> None:
    """Goal: no CRC covers properties; zeros where text should be are damage to recovery, not to a replica."""
    data = Fields(body=b"body", properties=torn).encode()
    log = MemoryLog()
    log.segment.memory[: len(data)] = data
    assert Dispatch().scan(log, 0, len(data)) == MESSAGE
    wary = Dispatch()
    wary.scanner.distrust = True
    assert wary.scan(log, 0, len(data)) == BAD_LENGTH
    whole = Fields(body=b"body", properties=props(A="x" * 1_200)).encode()
    log.segment.memory[: len(whole)] = whole
    assert wary.scan(log, 0, len(whole)) == MESSAGE


# Index units against the records they point to


def indexed_log() -> MemoryLog:
    log = MemoryLog(slots=5, index_units=50)
    for number in range(5):
        properties = props(KEYS=f"k{number} all", UNIQ_KEY=f"u{number}")
        log.append(properties=properties, store_ms=1_700_000_000_000 + number * 1_500)
    return log


def checked_units(log: MemoryLog, *, first: int = 1, log_start: int = 0, before_ms: int = -1) -> tuple[int, int]:
    segments = LogMap(log.size)
    segments.attach(log.segment)
    return check_index_units(log.index_files[0], segments, first, log_start, before_ms)  # type: ignore[no-any-return]


def test_sound_index_units_are_borne_out_by_their_records() -> None:
    """Goal: every key and every time is found again in the log."""
    log = indexed_log()
    assert log.index_files[0].count == 16
    assert checked_units(log) == (0, -1)
    assert checked_units(log, first=16) == (0, -1)


@pytest.mark.parametrize(
    ("number", "at", "value"),
    [
        (1, 0, pack(">i", 5)),
        (4, 0, pack(">i", 5)),
        (4, 4, pack(">q", 1)),
        (4, 12, pack(">i", 0)),
        (7, 12, pack(">i", 2)),
        (15, 12, pack(">i", 5)),
    ],
)
def test_index_unit_that_its_record_denies_is_named(number: int, at: int, value: bytes) -> None:
    """Goal: a wrong hash, place or time of any unit is found, and which it is."""
    log = indexed_log()
    start = 40 + 4 * 5 + 20 * number + at
    log.index_files[0].file.memory[start : start + len(value)] = value
    assert checked_units(log) == (number, -1)
    assert checked_units(log, first=number + 1) == (0, -1)


@pytest.mark.parametrize("at", [0, 8])
def test_header_times_must_be_those_of_the_first_and_last_record(at: int) -> None:
    """Goal: begin and end time of the file are checked with its first and last unit."""
    log = indexed_log()
    tail = log.index_files[0]
    value = (tail.begin_ms if at == 0 else tail.end_ms) + 1
    tail.file.memory[at : at + 8] = pack(">q", value)
    tail.load_header()
    assert checked_units(log) == ((1, -1) if at == 0 else (15, -1))


def test_units_of_deleted_records_are_passed_and_missing_segments_asked_for() -> None:
    """Goal: what lies before the log's start cannot be checked; what is not mapped is asked for."""
    log = indexed_log()
    segments = LogMap(log.size)
    assert check_index_units(log.index_files[0], segments, 1, 0, -1) == (1, 0)
    second = log.index_files[0].unit(4)[1]
    assert check_index_units(log.index_files[0], segments, 1, second, -1) == (4, second)
    assert check_index_units(log.index_files[0], segments, 1, log.appender.end, -1) == (0, -1)


def test_scan_says_how_and_where_it_ended() -> None:
    """Goal: at zeros, at a blank, at damage, at its stop; the last good record's start and end with it."""
    log = MemoryLog(size=4096)
    for _ in range(3):
        log.append(body=b"x")
    size, dispatch = log.appender.size, Dispatch()
    assert dispatch.scan(log, 0, size + 1) == MESSAGE
    assert (dispatch.scanner.at, dispatch.scanner.last_at, dispatch.scanner.good_end) == (2 * size, size, 2 * size)
    assert dispatch.scan(log, 2 * size) == END
    assert (dispatch.scanner.at, dispatch.scanner.last_at, dispatch.scanner.good_end) == (3 * size, 2 * size, 3 * size)
    assert dispatch.scan(log, 3 * size) == END
    assert (dispatch.scanner.at, dispatch.scanner.last_at, dispatch.scanner.good_end) == (3 * size, -1, -1)
    log.appender.close_segment()
    assert dispatch.scan(log, 3 * size) == BLANK
    log.segment.memory[size + 4] ^= 1
    assert Dispatch().scan(log) == BAD_MAGIC
    log.segment.memory[size + 4] ^= 1
    log.segment.memory[size + 3] ^= 1
    assert Dispatch().scan(log) == BAD_LENGTH


@pytest.mark.parametrize(("at", "stop"), [(-1, 10), (0, 1 << 17)])
def test_scan_outside_the_segment_is_an_error(at: int, stop: int) -> None:
    """Goal: no walk leaves its mapping."""
    with pytest.raises(IndexError):
        Dispatch().scan(MemoryLog(), at, stop)


def test_bad_body_is_doubtful_until_something_good_follows() -> None:
    """Goal: a damaged body in the middle keeps its queue offset, at the tail nothing vouches for it; no index."""
    log = MemoryLog(slots=5, index_units=50)
    for _ in range(3):
        log.append(body=b"body", properties=props(KEYS="k"))
    size = log.appender.size
    log.segment.memory[size + 88] ^= 1
    dispatch = Dispatch()
    assert dispatch.scan(log, 0, 2 * size) == MESSAGE
    assert (dispatch.scanner.doubtful, dispatch.scanner.bad_crc, dispatch.scanner.good_end) == (1, 0, size)
    assert dispatch.scan(log, 2 * size) == END
    assert (dispatch.scanner.doubtful, dispatch.scanner.bad_crc, dispatch.scanner.bad_crc_offset) == (0, 1, size)
    assert [dispatch.queues[b"TopicTest", 0].unit(n)[0] for n in range(3)] == [0, size, 2 * size]
    assert [dispatch.index_files[0].unit(n)[1] for n in (1, 2)] == [0, 2 * size]


def test_queue_that_cannot_be_is_left_out_and_its_keys_are_still_indexed() -> None:
    """Goal: a record of an impossible topic stops nothing."""
    log = MemoryLog(slots=5, index_units=50)
    log.append(log.queue(b"bad"), properties=props(KEYS="k"))
    log.append(log.queue(b"good"), properties=props(KEYS="k"))
    dispatch = Dispatch(refuse=frozenset([b"bad"]))
    dispatch.scan(log)
    assert list(dispatch.queues) == [(b"good", 0)]
    assert index_of(dispatch.index_files) == index_of(log.index_files)


def test_index_alone_can_be_built() -> None:
    """Goal: a rebuild of the index touches no queue."""
    log = written_log([{"topic": b"A", "queue_id": 1, "properties": props(KEYS="a b", UNIQ_KEY="u")}] * 3)
    dispatch = Dispatch()
    dispatch.scanner.to_queues = False
    dispatch.scan(log)
    assert dispatch.queues == {}
    assert index_of(dispatch.index_files) == index_of(log.index_files)
    assert dispatch.scanner.keyed_from == 0


def test_removed_queues_are_looked_up_again() -> None:
    """Goal: after a topic was deleted its old tail is not written to."""
    log = MemoryLog()
    log.append(body=b"x")
    dispatch = Dispatch()
    dispatch.scan(log)
    first = dispatch.queues.pop((b"TopicTest", 0))
    dispatch.scanner.forget_queues()
    dispatch.scan(log)
    assert dispatch.queues[b"TopicTest", 0] is not first
    assert dispatch.queues[b"TopicTest", 0].tail.next_offset == 1


def test_touched_queues_are_collected_once() -> None:
    """Goal: replicas wake their readers too."""
    log = MemoryLog()
    for topic in (b"A", b"B", b"A"):
        log.append(log.queue(topic))
    dispatch = Dispatch()
    dispatch.scan(log)
    assert [tail.topic for tail in dispatch.scanner.touched] == [b"A", b"B"]


def test_record_with_a_negative_queue_offset_does_not_crash_the_walk() -> None:
    """Goal: header fields are not covered by the CRC; a queue whose end is unknown (-1) must not match offset -1."""
    record = Fields(queue_offset=-1, log_offset=0).encode()
    script = f"""
        from rocketq.kernel.buffers import MappedBuffer
        from rocketq.kernel.queue_units import QueueTail
        from rocketq.kernel.scanner import Scanner, check_index_units

        misfits = []
        tail = QueueTail(b"TopicTest", 0, None)
        tail.next_offset = -1
        scanner = Scanner(lambda topic, queue_id: tail, lambda *facts: misfits.append(facts[1:]), None)
        scanner.scan(MappedBuffer(bytes.fromhex({record.hex()!r}), 0), 0, {len(record)})
        print(misfits)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.stdout == f"[(-1, 0, {len(record)}, 0)]\n", (done.returncode, done.stderr)
