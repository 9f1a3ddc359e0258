"""Performs random operations on the kernel and prints a digest of every result and of all memory it may have touched.

`python kernel_driver.py SEED OPERATIONS` is run once with each form of the kernel; the outputs must be equal. Buffers
end at a page that cannot be read: a kernel that looks one byte too far dies here, not in production.
Arguments stay within the C types (a compiled call refuses others with OverflowError, an interpreted one does not ask).
"""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import random
import sys
from collections.abc import Callable
from struct import pack
from typing import Any

import kernel_frames  # beside this file, which is run as a program

import rocketq.kernel
from rocketq.filter import compile_sql
from rocketq.kernel.admission import PullGrant, SendGrant, TokenBucket
from rocketq.kernel.answers import AnswerTemplate
from rocketq.kernel.appender import NO_QUEUE_ROOM, SEGMENT_FULL, Appender
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.fast_frames import FastFrames
from rocketq.kernel.fast_pulls import FastPulls, PullLimits
from rocketq.kernel.fast_sends import FastSends
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.properties import hash_text
from rocketq.kernel.queue_units import (
    SCHEDULE_TOPIC,
    QueueTail,
    count_units,
    first_real_unit,
    first_unit_beyond,
    first_unit_from,
    put_unit_at,
    unit_at,
)
from rocketq.kernel.reader import NEED_SEGMENT, LogMap, QueueRead, ReadLimits, ReadRequest
from rocketq.kernel.records import BAD_CRC, BAD_OFFSET, BLANK, MESSAGE, RecordView, find_next_record, first_nonzero
from rocketq.kernel.scanner import Scanner, check_index_units, walk_records
from rocketq.kernel.signatures import Account, Accounts, SignatureCheck

SEGMENT_BYTES = 16384
UNITS_PER_FILE = 16
SLOTS, INDEX_UNITS = 37, 400  # most messages have fewer keys than the index has room for, some do not
NOW_MS = 1_700_000_000_000
HOSTS = (bytes(4) + pack(">i", 10911), bytes(range(16)) + pack(">i", 80))
TOPICS = (b"A", b"TopicTest", SCHEDULE_TOPIC, b"%RETRY%group", b"\xff\xfe", b"t" * 127)
WORDS = (
    "",
    "a",
    "k1",
    "k1 k2",
    " x  y ",
    "\u4e2d\u6587",
    "\U0001f600",
    "TagZZZZZZ",
    "polygenelubricants",
    "1",
    "18",
    "99",
)
NAMES = ("TAGS", "KEYS", "UNIQ_KEY", "DELAY", "WAIT", "A", "")
VIEW_FIELDS = (
    *("size", "magic", "crc", "queue_id", "flag", "queue_offset", "log_offset", "sys_flag", "born_ms", "store_ms"),
    *("reconsume_times", "prepared_offset", "born_host_at", "born_host_len", "store_host_at", "store_host_len"),
    *("body_at", "body_len", "topic_at", "topic_len", "properties_at", "properties_len"),
)
ACCESS_KEYS = ["rocketmq2", "k", ""]
SECRETS = ["12345678", "s" * 65, "\u00e9"]
PAGE = mmap.PAGESIZE
PROGRAMS = [
    compile_sql(text)
    for text in (
        "DELAY > 5 OR TAGS = 'TagZZZZZZ' OR A IS NULL",
        "KEYS NOT IN ('k1', 'x') AND DELAY BETWEEN 1 AND 50",
        "TAGS < 1.5 OR A CONTAINS 'k'",
    )
]


SEND_TEMPLATES = (
    AnswerTemplate([b'{"id":"', b'","q":"', b'","o":"', b'","n":', b"}"], False, 0),
    AnswerTemplate([b'{"id":"', b'","q":"', b'","o":"', b'","t":"', b'","n":', b"}"], False, 0),
    AnswerTemplate([bytes(21), b"q", b"o", b"end"], True, 17),
    AnswerTemplate([bytes(21), b"q", b"o", b"t", b"end"], True, 17),
)
PULL_TEMPLATES = (
    AnswerTemplate([b'{"s":"', b'","x":"', b'","l":"', b'","h":"', b'","n":', b"}"], False, 0),
    AnswerTemplate([b'{"s":"', b'","x":"', b'","l":"', b'","h":"', b'","t":"', b'","g":"', b'","n":', b"}"], False, 0),
    AnswerTemplate([bytes(26), b"x", b"l", b"h", b""], True, 22),
    AnswerTemplate([bytes(26), b"x", b"l", b"h", b"t", b"g", b""], True, 22),
)


def guarded(data: bytes) -> memoryview:
    """A writable copy that ends where a page begins which nobody may touch."""
    whole = -(-max(len(data), 1) // PAGE) * PAGE
    pages = mmap.mmap(-1, whole + PAGE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mprotect(ctypes.c_void_p(start + whole), ctypes.c_size_t(PAGE), 0) != 0:
        raise OSError(ctypes.get_errno(), "mprotect")
    view = memoryview(pages)[whole - len(data) : whole]
    view[:] = data
    return view


def digest(*things: object) -> str:
    state = hashlib.blake2b(digest_size=8)
    for thing in things:
        state.update(thing if isinstance(thing, bytes) else repr(thing).encode())
        state.update(b"|")
    return state.hexdigest()


def held(buffer: MappedBuffer) -> bytes:
    return bytes(buffer.memory)


class DrivenQueue:
    """The owner of a queue tail, with files in memory."""

    def __init__(self, topic: bytes, queue_id: int, make_file: Callable[[int], MappedBuffer]) -> None:
        self.tail = QueueTail(topic, queue_id, self)
        self.files: dict[int, MappedBuffer] = {}
        self.min_offset = 0
        self._make_file = make_file

    def file_at(self, queue_offset: int) -> MappedBuffer | None:
        return self.files.get(queue_offset // UNITS_PER_FILE)

    def end_below(self, log_offset: int) -> int:
        return max(self.tail.next_offset - 1 - log_offset % 3, 0)

    def file_of(self, queue_offset: int) -> MappedBuffer:
        number = queue_offset // UNITS_PER_FILE
        if number not in self.files:
            self.files[number] = self._make_file(number * UNITS_PER_FILE)
        return self.files[number]

    def make_room(self, count: int) -> None:
        self.attach_file()
        self.tail.room_end = self.tail.next_offset + count

    def attach_file(self) -> None:
        self.tail.attach(self.file_of(self.tail.next_offset), self.tail.room_end)

    def begin_at(self, queue_offset: int) -> None:
        self.tail.detach()
        self.tail.next_offset = queue_offset

    def facts(self) -> list[object]:
        tail = self.tail
        numbers = (tail.next_offset, tail.log_end, tail.file_first, tail.file_end, tail.room_end, tail.touched)
        return [numbers, *(held(file) for _, file in sorted(self.files.items()))]


def empty_file(base: int) -> MappedBuffer:
    return MappedBuffer(guarded(bytes(20 * UNITS_PER_FILE)), base)


def fresh_index(full: IndexTail | None = None) -> IndexTail:
    tail = IndexTail(MappedBuffer(guarded(bytes(40 + 4 * SLOTS + 20 * INDEX_UNITS)), 0), SLOTS, INDEX_UNITS)
    if full is not None:
        tail.preset(full.end_ms, full.end_offset)
    return tail


def index_facts(tail: IndexTail | None) -> list[object]:
    if tail is None:
        return [None]
    numbers = (tail.count, tail.used_slots, tail.begin_ms, tail.end_ms, tail.begin_offset, tail.end_offset, tail.full)
    return [numbers, held(tail.file)]


def parsed(buffer: MappedBuffer, at: int, check_crc: bool) -> list[int]:
    """The state, and the fields where it vouches for them."""
    view = RecordView()
    state = int(view.parse_at(buffer, at, check_crc))
    if state == BLANK:
        return [state, view.size]
    return (
        [state, *(getattr(view, name) for name in VIEW_FIELDS)] if state in (MESSAGE, BAD_CRC, BAD_OFFSET) else [state]
    )


class Driver:
    """A small store in memory and a list of things that can happen to it."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.log = LogMap(SEGMENT_BYTES)
        self.store_host = self.rng.choice(HOSTS)
        self.appender = Appender(self.store_host)
        self.appender.delays_ms = self.rng.choice([[], [1_000, 5_000, 10_000]])
        self.appender.roll_index = self.roll_index
        self.indexes: list[IndexTail] = []
        self.appender.index = self.roll_index(None)
        self.queues: dict[tuple[bytes, int], DrivenQueue] = {}
        self.segments: list[MappedBuffer] = []
        self.now_ms = NOW_MS
        self.new_segment()
        self.generation = 1
        self.frames = self.fast_frames()
        self.check, self.accounts = SignatureCheck(), Accounts()

    # What the kernel asks its owners for

    def roll_index(self, full: IndexTail | None) -> IndexTail:
        tail = fresh_index(full)
        self.indexes.append(tail)
        return tail

    def new_segment(self) -> None:
        segment = MappedBuffer(guarded(bytes(SEGMENT_BYTES)), len(self.segments) * SEGMENT_BYTES)
        self.segments.append(segment)
        self.log.attach(segment)
        self.appender.attach_segment(segment, 0)

    def fast_frames(self) -> FastFrames:
        """Served are the queues of some topics, of which one can be pulled from; one of each is not made yet."""
        topic = kernel_frames.TOPIC.encode()
        for name in map(str.encode, kernel_frames.TOPICS):
            for queue_id in range(kernel_frames.QUEUES):
                self.queues[name, queue_id] = DrivenQueue(name, queue_id, empty_file)
        tails = [self.queues[topic, queue_id].tail for queue_id in range(kernel_frames.QUEUES)]
        sends = FastSends(self.appender, self.store_host.hex().encode(), 450)
        for name in map(str.encode, kernel_frames.TOPICS):
            sends.add_grant(self.send_grant(name))
        sends.open, sends.durable, sends.body_bytes_max = True, self.rng.random() < 0.3, 4096
        pulls = FastPulls(sends.out, self.log, lambda: self.visible_to, PULL_TEMPLATES, 450, 1 << 20)
        pulls.open = True
        pulls.limits = PullLimits(
            count_max=32, bytes_max=self.rng.choice((600, 1 << 18)),
            asked_count_max=64, asked_bytes_max=1 << 16, memory_bytes=1 << 40,
        )  # fmt: skip
        group = kernel_frames.GROUP.encode()
        for key, codes in ((b"", None), (b"\0*", None), (b"\0TagA", frozenset((hash_text("TagA"),)))):
            whole = 0, None, group + b"\0" + topic + key
            grant = PullGrant(whole, topic, group, 0, None, [*tails, None], 1, codes, 1, (0, 1, 2, 3))
            pulls.add_grant(grant)
        sends.generation = pulls.generation = self.generation
        self.visible_to = 1 << 60
        return FastFrames(sends, pulls, 1 << 20)

    def send_grant(self, topic: bytes) -> SendGrant:
        """Now and then with a quota, or with what the broker adds where messages are traced."""
        queues: list[QueueTail | None] = [self.queues[topic, queue_id].tail for queue_id in range(kernel_frames.QUEUES)]
        queues = [*queues[: self.rng.choice((1, 3, 3))], None]
        traced, sys_flag = self.rng.random() < 0.3, self.rng.choice((0, 2))
        suffix = b"MSG_REGION\x01R\x02TRACE_ON\x01true\x02CLUSTER\x01C" if traced else b"CLUSTER\x01C"
        group, generation = kernel_frames.PRODUCER.encode(), self.generation
        grant = SendGrant(topic, group, 0, None, queues, generation, sys_flag, suffix, traced, SEND_TEMPLATES)
        if self.rng.random() < 0.3:
            grant.limit((TokenBucket("topic T", "messages", 3.0), TokenBucket("topic T", "bytes", 5000.0)))
        if self.rng.random() < 0.8:
            delayed = SendGrant(SCHEDULE_TOPIC, b"", 0, None, [], 0, 0, b"", False, SEND_TEMPLATES)
            levels = [
                self.queues.setdefault((SCHEDULE_TOPIC, n), DrivenQueue(SCHEDULE_TOPIC, n, empty_file)) for n in (0, 1)
            ]
            grant.delay_by([levels[0].tail, levels[1].tail, None], delayed)
        return grant

    # Random material

    def text(self) -> str:
        if self.rng.random() < 0.7:
            return self.rng.choice(WORDS)
        points = (0x20, 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF, 0xD800, 0xDFFF)
        return "".join(chr(self.rng.choice(points)) for _ in range(self.rng.randrange(6)))

    def properties(self) -> bytes:
        if self.rng.random() < 0.15:
            return self.rng.randbytes(self.rng.randrange(60)).replace(b"\x03", b"\x02").replace(b"\x04", b"\x01")
        items = []
        for _ in range(self.rng.randrange(5)):
            value = self.text().encode("utf-8", "surrogatepass") if self.rng.random() < 0.9 else self.rng.randbytes(5)
            items.append(self.rng.choice(NAMES).encode() + b"\x01" + value)
        data = b"\x02".join(items)
        return data + b"\x02" if self.rng.random() < 0.7 else data

    def body(self) -> bytes:
        return self.rng.randbytes(self.rng.choice((0, 1, 7, 15, 16, 63, 64, 65, 80, 127, 128, 200, 333, 1000)))

    def i32(self) -> int:
        return self.rng.choice((0, 1, -1, 0x7FFFFFFF, -0x80000000, self.rng.randrange(-1000, 1000)))

    def i64(self) -> int:
        return self.rng.choice((0, -1, (1 << 63) - 1, -(1 << 63), self.rng.randrange(1 << 40)))

    def queue(self) -> DrivenQueue:
        key = self.rng.choice(TOPICS), self.rng.randrange(3)
        if key not in self.queues:
            self.queues[key] = DrivenQueue(*key, empty_file)
        return self.queues[key]

    def damaged(self, data: bytes, *, times_max: int = 4) -> bytes:
        """The same bytes with some overwritten, most often numbers where numbers stand."""
        work = bytearray(data)
        for _ in range(self.rng.randrange(times_max + 1)):
            at = self.rng.randrange(len(work))
            if self.rng.random() < 0.5:
                starts = [
                    n
                    for n in range(0, len(work) - 8, 4)
                    if work[n : n + 4] in (b"\xda\xa3\x20\xa7", b"\xcb\xd4\x31\x94")
                ]
                field = (-4, 0, 4, 8, 16, 24, 32, 36, 80, 84, 92)
                at = max(self.rng.choice(starts) + self.rng.choice(field), 0) if starts else at
            piece = self.rng.choice(
                (
                    pack(">i", self.i32()),
                    pack(">q", self.i64()),
                    bytes(self.rng.randrange(64)),
                    b"\xff" * 8,
                    self.rng.randbytes(self.rng.randrange(1, 9)),
                    pack(">iI", self.rng.randrange(200), self.rng.choice((0xDAA320A7, 0xDAA320AB, 0xCBD43194))),
                )
            )
            work[at : at + len(piece)] = piece[: len(work) - at]
        return bytes(work)

    # Operations: each returns what it saw

    def op_append(self) -> object:
        queue = self.queue()
        self.now_ms += self.rng.choice((0, 1, 999, 1000, 61_000, -5_000))
        args = (self.body(), self.properties(), self.i32(), self.rng.choice((0, 1, 0x301, 4, 8, 12, 0x34)))
        args += (self.i64(), self.rng.choice(HOSTS), self.now_ms, self.i32(), self.i64())
        return self._until_appended(lambda: self.appender.append(queue.tail, *args), queue, 1)

    def _until_appended(self, attempt: Callable[[], int], queue: DrivenQueue, count: int) -> object:
        states = []
        for _ in range(4):
            states.append(int(attempt()))
            if states[-1] == SEGMENT_FULL:
                self.appender.close_segment()
                self.new_segment()
            elif states[-1] == NO_QUEUE_ROOM:
                queue.make_room(count)
            else:
                break
        a = self.appender
        return states, a.log_offset, a.queue_offset, a.size, a.store_ms, a.batch_count, a.position, a.end, a.records

    def op_batch(self) -> object:
        queue, extra = self.queue(), self.properties() if self.rng.random() < 0.6 else b""
        parts = []
        for _ in range(self.rng.randrange(1, 5)):
            body, properties = self.body(), self.properties()
            head = pack(">iiiii", 22 + len(body) + len(properties), self.i32(), self.i32(), self.i32(), len(body))
            parts.append(head + body + pack(">h", len(properties)) + properties)
        payload = b"".join(parts)
        if self.rng.random() < 0.4:
            payload = self.damaged(payload)[: self.rng.choice((None, -1, 30))]
        sys_flag, born_host = self.rng.choice((0, 1, 0x10)), self.rng.choice(HOSTS)
        topic_len = len(queue.tail.topic)
        real_flag = (sys_flag & ~0x30) | (0x10 if len(born_host) == 20 else 0)
        real_flag |= 0x20 if len(self.store_host) == 20 else 0
        count, total = self.appender.measure_batch(
            payload, topic_len, extra, real_flag, self.rng.choice((100, 1 << 20))
        )
        if count <= 0 or total + 8 > SEGMENT_BYTES:
            return int(count), total
        args = (queue.tail, payload, extra, count, total, sys_flag, self.i64(), born_host, self.now_ms, self.i32())
        done = self._until_appended(lambda: self.appender.append_batch(*args), queue, count)
        return count, total, done, self.appender.batch_offsets

    def op_frames(self) -> object:
        """What a socket may bring; a queue that has no room gets some, a full log file is closed."""
        frames, sends, pulls, out = self.frames, self.frames.sends, self.frames.pulls, []
        data, at = kernel_frames.frames(self.rng), 0
        self.visible_to = self.rng.choice((1 << 60, 1 << 60, self.appender.end, self.appender.end // 2))
        self.now_ms += 1
        for _ in range(8):
            end = frames.feed(data, at, self.rng.choice(HOSTS), self.now_ms)
            out.append((at, end, frames.slow_at, frames.stopped, sends.taken, sends.taken_bytes, pulls.taken))
            out.append(frames.refused_parts(data) if frames.slow_at >= 0 else None)
            at = end
            if frames.slow_at < 0 and not frames.stopped:
                break
        out.append((list(sends.missed), list(pulls.missed)))
        out.append([(grant.count, grant.size_bytes, grant.times) for grant in sends.grown])
        out.append([(grant.count, grant.size_bytes, grant.positions, grant.commits) for grant in pulls.served])
        sends.missed.clear()
        pulls.missed.clear()
        if self.appender.position > SEGMENT_BYTES - 3_000:
            self.appender.close_segment()
            self.new_segment()
        for topic in map(str.encode, kernel_frames.TOPICS):
            queue = self.queues[topic, self.rng.randrange(kernel_frames.QUEUES)]
            queue.make_room(self.rng.choice((1, 5, UNITS_PER_FILE)))
        for level in range(2):
            if (SCHEDULE_TOPIC, level) in self.queues:
                self.queues[SCHEDULE_TOPIC, level].make_room(self.rng.choice((1, 5)))
        return digest(sends.out.take()), digest(sends.held.take()), out

    def op_grants(self) -> object:
        """Topics that change, or go and come back with other queues; one may be another queue than it was."""
        sends, topic = self.frames.sends, self.rng.choice(kernel_frames.TOPICS).encode()
        queue_id = self.rng.randrange(kernel_frames.QUEUES)
        if self.rng.random() < 0.3:
            self.queues[topic, queue_id] = DrivenQueue(topic, queue_id, empty_file)
            self.queues[topic, queue_id].make_room(1)
        if self.rng.random() < 0.5:
            sends.clear_grants()
            for name in map(str.encode, kernel_frames.TOPICS):
                if self.rng.random() < 0.9:
                    sends.add_grant(self.send_grant(name))
        else:
            sends.add_grant(self.send_grant(topic))
        if self.rng.random() < 0.2:  # all that were given before are stale
            self.generation += 1
            sends.generation = self.generation
        counted = [(grant.topic, grant.collect()) for grant in sends.grown]
        sends.grown.clear()
        return counted

    def op_signatures(self) -> object:
        """Signed frames, some changed on the way, and accounts that come, change and go."""
        key = self.rng.choice(ACCESS_KEYS)
        if self.rng.random() < 0.7:
            secrets = [secret.encode() for secret in self.rng.choices(SECRETS, k=self.rng.choice((1, 2)))]
            self.accounts.put(Account(key.encode(), secrets, len(self.accounts)))
        elif self.rng.random() < 0.3:
            self.accounts.remove(key.encode())
        signers = []
        for _ in range(self.rng.randrange(1, 8)):
            frame = kernel_frames.signed_frame(self.rng, ACCESS_KEYS, SECRETS)
            frame = frame[: len(frame) - self.rng.choice((0, 0, 0, 0, 1, 40))]
            signer = self.check.signer_of(frame, self.accounts)
            signers.append(None if signer is None else (signer.access_key, signer.owner))
        return signers

    def op_touched(self) -> object:
        touched = [(tail.topic, tail.queue_id) for tail in self.appender.touched]
        for tail in self.appender.touched:
            tail.touched = False
        self.appender.touched = []
        return touched

    def op_scan(self) -> object:
        """A damaged copy of a segment, dispatched to queues and an index of its own."""
        segment = self.rng.choice(self.segments)
        copy = MappedBuffer(guarded(self.damaged(held(segment))), segment.base)
        queues: dict[tuple[bytes, int], DrivenQueue] = {}
        events: list[object] = []
        unknown, generous = self.rng.random() < 0.3, self.rng.random() < 0.5

        def resolve(topic: bytes, queue_id: int) -> QueueTail | None:
            events.append((topic, queue_id))
            if not 0 <= queue_id < 8 or len(topic) > 127:
                return None
            queue = queues[topic, queue_id] = DrivenQueue(topic, queue_id, empty_file)
            queue.tail.next_offset = -1 if unknown else 0
            return queue.tail

        def misfit(tail: QueueTail, queue_offset: int, log_offset: int, size: int, code: int) -> None:
            events.append((tail.topic, tail.queue_id, queue_offset, log_offset, size, code))
            if generous and 0 <= queue_offset < 1 << 20:
                tail.owner.begin_at(queue_offset)
                tail.owner.make_room(1)
                tail.put_next(log_offset, size, code)

        scanner = Scanner(resolve, misfit, fresh_index)
        scanner.delays_ms = [1_000]
        scanner.check_crc = self.rng.random() < 0.7
        scanner.to_queues = self.rng.random() < 0.9
        scanner.distrust = self.rng.random() < 0.5
        scanner.compare_only = self.rng.random() < 0.2
        if self.rng.random() < 0.3:
            scanner.boundary = segment.base + self.rng.randrange(SEGMENT_BYTES)
            scanner.cross = lambda log_offset: events.append(("cross", log_offset))
        scanner.index = fresh_index() if self.rng.random() < 0.8 else None
        at, stop = self.span(SEGMENT_BYTES)
        at = at if self.rng.random() < 0.3 else 0
        out: list[object] = []
        for _ in range(6):
            out.append((int(scanner.scan(copy, at, max(at, stop))), scanner.at, scanner.last_at, scanner.good_end))
            at = int(find_next_record(copy, scanner.at + 1, SEGMENT_BYTES, RecordView()))
            if at < 0:
                break
        counters = (scanner.records, scanner.bad_crc, scanner.doubtful, scanner.bad_crc_offset, scanner.last_store_ms)
        counters += (scanner.keys, scanner.keyed_from)
        tails = [(tail.topic, tail.queue_id) for tail in scanner.touched]
        found = [queue.facts() for _, queue in sorted(queues.items())]
        return out, counters, events, tails, digest(*map(repr, found)), index_facts(scanner.index)

    def span(self, size: int) -> tuple[int, int]:
        at, stop = sorted((self.rng.randrange(size + 1), self.rng.randrange(size + 1)))
        return at, stop

    def op_walk(self) -> object:
        segment = self.rng.choice(self.segments)
        data = self.damaged(held(segment))
        data = data[: self.rng.choice((len(data), self.rng.randrange(len(data))))]
        copy = MappedBuffer(guarded(data), segment.base)
        at, stop = self.span(len(data))
        check_crc = self.rng.random() < 0.5
        walked = walk_records(copy, self.rng.choice((0, at)), stop, RecordView(), check_crc)
        views = [parsed(copy, start, check_crc) for start in (0, at, stop)]
        next_at = find_next_record(copy, at, stop, RecordView())
        return tuple(map(int, walked)), views, int(next_at), int(first_nonzero(copy, at, stop)), copy.crc32(at, stop, 7)

    def op_read(self) -> object:
        """A queue file, perhaps damaged, read through the log, perhaps with gaps."""
        filled = [(queue.tail, file) for queue in self.queues.values() for file in queue.files.values()]
        if not filled:
            return None
        queue, file = self.rng.choice(filled)
        data = self.damaged(held(file)) if self.rng.random() < 0.4 else held(file)
        units = MappedBuffer(guarded(data), file.base)
        log = LogMap(SEGMENT_BYTES)
        for segment in self.segments:
            if self.rng.random() < 0.8:
                log.attach(segment)
        limits = ReadLimits(
            self.rng.choice((1, 3, 32, 5000)),
            self.rng.choice((1, 500, 1 << 18)),
            self.rng.choice((1, 8)),
            self.rng.choice((300, 1 << 16)),
            self.rng.choice((5, 800)),
            self.appender.end,
            1 << 40,  # only one form can ask whether far records are in memory: tests/unit/kernel/test_residency.py
        )
        asked: list[object] = []
        wanted = self.rng.choice((None, None, frozenset((0, 97, -367331910, 2598919))))
        odd = self.rng.random() < 0.3
        unit_filter = (lambda code: asked.append(code) or code % 2 == 0) if odd else None
        record_filter = (lambda record: asked.append(digest(record)) or len(record) % 3 > 0) if odd else None
        record_filter = record_filter or self.rng.choice((None, *PROGRAMS))
        first, stop = self.span(UNITS_PER_FILE)
        gone_until = self.rng.choice((0, 0, SEGMENT_BYTES, 5000))
        found, out = QueueRead(), []
        for _ in range(len(self.segments) + 20):
            state = found.read(
                log,
                queue,
                units,
                first,
                stop,
                ReadRequest(limits, gone_until, wanted, unit_filter, record_filter, not odd),
            )
            out.append(
                (
                    int(state),
                    found.found,
                    found.bad,
                    found.bad_units,
                    found.filtered,
                    found.scanned,
                    found.need_log_offset,
                )
            )
            if state != NEED_SEGMENT:
                break
            log.attach(MappedBuffer(b"", found.need_log_offset // SEGMENT_BYTES * SEGMENT_BYTES))
        places = (found.bad_log_offset, found.missing_log_offset)
        return out, places, digest(found.records), asked, sorted(log.idle()), sorted(log.idle())

    def op_units(self) -> object:
        filled = [file for queue in self.queues.values() for file in queue.files.values()]
        if not filled:
            return None
        units = MappedBuffer(guarded(self.damaged(held(self.rng.choice(filled)))), 0)
        start, stop = self.span(UNITS_PER_FILE)
        place = self.rng.randrange(self.appender.end + 1)
        seen = [unit_at(units, index) for index in range(UNITS_PER_FILE)]
        answers = (
            count_units(units, start, stop),
            first_real_unit(units, start, stop),
            first_unit_from(units, start, stop, place),
            first_unit_beyond(units, start, stop, place),
        )
        put_unit_at(units, self.rng.randrange(UNITS_PER_FILE), self.i64(), self.i32(), self.i64())
        return digest(seen), tuple(map(int, answers)), digest(held(units))

    def op_index(self) -> object:
        """Searches, checks and cuts of a copy of an index file, sound or damaged."""
        source = held(self.rng.choice(self.indexes).file)
        tail = IndexTail(
            MappedBuffer(guarded(self.damaged(source) if self.rng.random() < 0.5 else source), 0), SLOTS, INDEX_UNITS
        )
        if tail.count > INDEX_UNITS:  # recovery drops such a file before anything else is asked of it
            return "count", tail.check(self.appender.end)
        out: list[object] = [tail.check(self.appender.end), tail.check(self.appender.end // 2)]
        known = sorted({tail.unit(number)[0] for number in range(tail.count)})
        for _ in range(3):
            hashed = self.rng.choice([value for value in known if value >= 0] or [0])
            begin = self.rng.choice((0, NOW_MS, self.now_ms - 5_000))
            out.append(tail.search(hashed, self.rng.choice((1, 4, 64)), begin, self.rng.choice((1 << 60, self.now_ms))))
        out.append(check_index_units(tail, self.log, self.rng.randrange(1, 4), 0, self.rng.choice((-1, NOW_MS))))
        count = self.rng.randrange(1, tail.count + 1)
        tail.cut_to(count, self.i64(), self.i64(), self.i64(), self.i64())
        return out, index_facts(tail)

    def op_map(self) -> object:
        log = LogMap(SEGMENT_BYTES)
        for segment in self.segments[:3]:
            log.attach(segment)
        out: list[object] = []
        for _ in range(12):
            offset = self.rng.randrange(-SEGMENT_BYTES, 5 * SEGMENT_BYTES)
            found = log.segment_of(offset)
            out.append((offset, None if found is None else found.base))
            if self.rng.random() < 0.2:
                out.append(sorted(log.idle()))
            if self.rng.random() < 0.2:
                log.detach(self.rng.randrange(3) * SEGMENT_BYTES)
        return out

    def op_leaves(self) -> object:
        """The smallest pieces: hashes, checksums, zeros, copies."""
        data = self.rng.choice((self.rng.randbytes, bytes))(self.rng.randrange(400))
        buffer = MappedBuffer(guarded(data), 0)
        at, stop = self.span(len(data))
        text = self.text() + self.text()
        return (
            hash_text(text),
            hash_text(text, 12345),
            buffer.crc32(at, stop, self.rng.randrange(1 << 32)),
            int(first_nonzero(buffer, at, stop)),
            buffer.bytes_at(at, stop - at),
        )

    def run(self, operations: int) -> None:
        """Each operation prints one line: its name, the digest of what it saw, the digest of all memory."""
        menu: list[tuple[Callable[[], object], int]] = [
            (self.op_append, 40),
            (self.op_batch, 10),
            (self.op_frames, 25),
            (self.op_grants, 3),
            (self.op_signatures, 8),
            (self.op_touched, 2),
            (self.op_scan, 8),
            (self.op_walk, 8),
            (self.op_read, 10),
            (self.op_units, 4),
            (self.op_index, 8),
            (self.op_map, 2),
            (self.op_leaves, 8),
        ]
        choices, weights = zip(*menu, strict=True)
        for number in range(operations):
            if len(self.segments) > 6:
                self.__init__(self.rng.randrange(1 << 30))  # type: ignore[misc]
            operation = self.rng.choices(choices, weights)[0]
            try:
                seen: Any = operation()
            except Exception as error:  # an error is a result too: both forms must raise the same
                seen = (type(error).__name__, str(error) if isinstance(error, (ValueError, IndexError)) else "")
            memory = digest(held(self.segments[-1]), *index_facts(self.appender.index), *self.queue_facts())
            print(
                number,
                operation.__name__,
                digest(seen),
                memory,
                str(seen)[:300].encode("ascii", "replace").decode(),
                flush=True,
            )

    def queue_facts(self) -> list[object]:
        return [repr(queue.facts()) for _, queue in sorted(self.queues.items())]


def main() -> None:
    seed, operations = int(sys.argv[1]), int(sys.argv[2])
    print("kernel", "compiled" if rocketq.kernel.compiled else "interpreted", flush=True)
    Driver(seed).run(operations)


if __name__ == "__main__":
    main()
