"""A connection's bytes, from the event loop straight to the kernel, and its answers straight to the socket.

A FastConnection takes the place of its connection as the transport's protocol. What the kernel can execute whole passes
no Python function; everything else goes to the connection, which sees no difference.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.admission import Generation
    from rocketq.kernel.fast_frames import FastFrames
    from rocketq.kernel.primitives import send_now

NEVER_NS = 1 << 62


@cython.cclass
class FastPath:
    """What all fast connections of a port share: the frames, and whether they may be executed now.

    With `scoped` each connection has separate grants. The kernel executes while `generation` has the number that
    its owner last allowed, and until the time it was allowed to; otherwise reads go to the connections, whose owner
    checks everything again. `finish_turn()` is called in the loop's next turn, once until `finishing` is taken back:
    something is stored that a waiter needs (`stored`: anything is stored), or answers must wait (`held`: pairs of
    a connection and its answers).
    """

    def __init__(
        self, frames: FastFrames, generation: Generation, store, dispatcher, clocks, call_soon, finish_turn, waiting,
    ):  # fmt: skip
        self.frames = frames
        self.generation = generation
        self._sends = frames.sends
        self._pulls = frames.pulls
        self._acquire = store.lock.acquire
        self._release = store.lock.release
        self._stored = store.stored
        self._listeners = store.append_listeners
        self._dispatcher = dispatcher
        self._now_ns, self._monotonic_ns = clocks
        self._call_soon = call_soon
        self._finish_turn = finish_turn
        self._waiting = waiting
        self._allowed = 0
        self._allowed_to_ns = 0
        self.may_send = self.scoped = False
        self.sends_from_ms = 0
        self.finishing = self.stored = False
        self.held = []
        self._last = None
        self._deferring = []
        if not cython.compiled:  # else zeroed when they were allocated
            self._took = [0] * 50
            self._took_ns = [0] * 5

    def allow(self, generation: cython.longlong, to_ns: cython.longlong):
        """Execute while this is the generation (0: not at all), until a time of the monotonic clock."""
        self._allowed = generation
        self._allowed_to_ns = to_ns

    def is_allowed(self):
        """Whether all that was checked is still so."""
        now_ns: cython.longlong
        if self._allowed != self.generation.number:
            return False
        if self._allowed_to_ns == NEVER_NS:
            return True
        now_ns = self._monotonic_ns()
        return now_ns < self._allowed_to_ns

    def take_held(self):
        """The answers that wait since the last call, and how many requests they are to."""
        held, self.held = self.held, []
        count: cython.longlong = self._sends.held_count
        self._sends.held_count = 0
        return held, count

    def has_waiters(self):
        """Whether what is stored must be announced immediately. Later waiters check before they wait, and the flusher
        announces the rest periodically."""
        return self._sends.durable or len(self._listeners) > 0 or self._waiting()

    def serve_rest(self, connection: FastConnection):
        """For the owner, which holds the lock and has checked everything: continue in the connection's own data."""
        connection.at = self.run(connection, connection.data, connection.at)
        return self._sends.out.take()

    def serve(self, connection, data):
        """How far the kernel came; -1 when it may not execute anything now."""
        self._acquire()
        try:
            if not self.is_allowed():
                return -1
            return self.run(connection, data, 0)
        finally:
            self._release()

    def run(self, connection, data, at):
        now_ms: cython.longlong = self._now_ns() // 1_000_000
        done: cython.bint = False
        stored: cython.longlong = self._sends.taken
        stored_bytes: cython.longlong = self._sends.taken_bytes
        given: cython.longlong = self._pulls.given
        given_bytes: cython.longlong = self._pulls.given_bytes
        began_ns: cython.longlong = self._monotonic_ns()
        self._sends.open = self.may_send and now_ms >= self.sends_from_ms
        self._sends.generation = self._pulls.generation = self._allowed
        self.frames.scope = connection.number if self.scoped else 0
        if self._sends.durable:
            self._sends.held_max = self._dispatcher.free_slots
        try:
            at = self.frames.run(data, at, connection.born_host, now_ms)
            done = True
        finally:  # no other connection may get these answers
            if not done:
                self._sends.out.take()
            self.note(connection, stored)
            self.observe(self._monotonic_ns() - began_ns)
            connection.messages_in += self._sends.taken - stored
            connection.bytes_in += self._sends.taken_bytes - stored_bytes
            connection.messages_out += self._pulls.given - given
            connection.bytes_out += self._pulls.given_bytes - given_bytes
        return at

    def note(self, connection, before):
        """What must be known before anybody else has the lock, and what can be announced later."""
        if self._sends.taken > before:
            self.stored = True
            self._stored()
        if self._sends.held.length > 0:
            self.held.append((connection, self._sends.held.take()))
        if not self.finishing and self.stored and self.has_waiters():
            self.finishing = True
            self._call_soon(self._finish_turn)
        return 0

    def observe(self, took_ns):
        """Count the requests of this run by code and time: each took as long as the run. Sends whose answers wait are
        counted when these are sent."""
        index: cython.int
        count: cython.longlong
        bucket: cython.int = 0
        if took_ns > 1_000_000:
            bucket = time_class(took_ns)
        for index in range(5):
            count = self.frames.executed[index]
            if count > 0:
                self.frames.executed[index] = 0
                if index > 2 or not self._sends.durable:
                    self._took[index * 10 + bucket] += count
                    self._took_ns[index] += count * took_ns
        return 0

    def collect_times(self):
        """Requests since the last call: for each of codes 10, 310, 320, 11 and 361 the counts by time (Apache's buckets
        of milliseconds) and the nanoseconds together."""
        index: cython.int
        bucket: cython.int
        found: list = []
        for index in range(5):
            counts: list = []
            for bucket in range(10):
                counts.append(self._took[index * 10 + bucket])
                self._took[index * 10 + bucket] = 0
            found.append((counts, self._took_ns[index]))
            self._took_ns[index] = 0
        return found

    def is_alone(self, connection):
        """Whether no other connection was served since this one was."""
        alone: cython.bint = self._last is connection or self._last is None
        self._last = connection
        return alone

    def defer(self, connection):
        """Its answer goes with all others of this turn of the loop. Where each is sent immediately, a peer that waits
        for many is woken for every single one."""
        if len(self._deferring) == 0:
            self._call_soon(self.send_deferred)
        self._deferring.append(connection)
        return 0

    def forget(self, connection):
        if self._last is connection:
            self._last = None

    def send_deferred(self):
        connection: FastConnection
        deferring: list = self._deferring
        self._deferring = []
        for connection in deferring:
            connection.send_deferred()


def time_class(took_ns):
    """Which of Apache's latency buckets above 1 ms: 3, 5, 7, 10, 100, 1,000, 2,000, 3,000 ms, more."""
    if took_ns <= 3_000_000:
        return 1
    if took_ns <= 10_000_000:
        return 2 if took_ns <= 5_000_000 else (3 if took_ns <= 7_000_000 else 4)
    if took_ns <= 1_000_000_000:
        return 5 if took_ns <= 100_000_000 else 6
    return 7 if took_ns <= 2_000_000_000 else (8 if took_ns <= 3_000_000_000 else 9)


@cython.cclass
class FastConnection:
    """A connection in the fast path: what was read and not parsed yet (`data` from `at` on), and its socket.

    `number` is what grants for only this connection are found by. `decoding`: what comes next is the
    decoder's. `served_to`: the kernel has executed a read up to there and stopped, the rest is for the owner (-1: it
    has not). `active`: something was read or written since last asked. The counters are of messages that the fast path
    stored or gave since the start.
    """

    def __init__(self, path: FastPath, owner, decoder, born_host, number):
        self._path = path
        self.number = number
        self.messages_in = self.bytes_in = self.messages_out = self.bytes_out = 0
        self.owner = owner
        self.decoder = decoder
        self.born_host = born_host
        self.data = b""
        self.at = 0
        self.served_to = -1
        self.decoding = self.active = False
        self._deferred = b""
        self.paused = False
        self._transport = self._unsent_bytes = self._write = self._is_closing = None
        self._fd = -1

    def attach(self, transport, fd):
        """Be the protocol of a transport whose bytes are frames; `fd` is its socket's, or -1 when it has none."""
        self.paused = self.owner.writes_paused
        self._transport = transport
        self._unsent_bytes = transport.get_write_buffer_size
        self._write = transport.write
        self._is_closing = transport.is_closing
        self._fd = fd
        transport.set_protocol(self)

    def take(self, more: bytes):
        """All that was not parsed yet."""
        rest = self.data[self.at :] + more
        self.data = b""
        self.at = 0
        return rest

    @property
    def rest_bytes(self):
        return len(self.data) - self.at

    # called by the event loop

    def data_received(self, data: bytes):
        path: FastPath = self._path
        at: cython.Py_ssize_t
        if self.decoding or self.paused or len(self.data) > 0 or len(data) >= READ_BYTES_MAX:
            self.owner.data_received(data)
            return
        self.active = True
        try:
            at = path.serve(self, data)
        except Exception:  # an internal error ends this connection, not the process
            self.owner.fail()
            return
        if at == len(data) and path.frames.slow_at < 0:
            if path._sends.out.length > 0:
                self.answer(path._sends.out)
            return
        self.served_to = at
        self.owner.data_received(data)
        if self.served_to >= 0:  # it ignored the read; no other connection may get these answers
            self.served_to = -1
            path._sends.out.clear()

    def answer(self, out):
        if len(self._deferred) > 0:
            self._deferred += out.take()
        elif self._path.is_alone(self) or out.length >= DEFERRED_BYTES_MAX:
            self.send(out.p, out.length, out, None)
        else:
            self._deferred = out.take()
            self._path.defer(self)
        return 0

    def eof_received(self):
        self.send_deferred()
        return self.owner.eof_received()

    def connection_lost(self, error):
        self._fd = -1
        self._transport = self._unsent_bytes = self._write = self._is_closing = None
        self._deferred = b""
        self._path.forget(self)
        self.owner.connection_lost(error)

    def pause_writing(self):
        self.paused = True
        self.owner.pause_writing()

    def resume_writing(self):
        self.paused = False
        self.owner.resume_writing()

    # out

    def write(self, data: bytes):
        """Whole answers; without effect on a closed connection."""
        if len(self._deferred) > 0:
            data = self._deferred + data
            self._deferred = b""
        if self._transport is None or self.paused:
            self.owner.write(data)
        elif not self._is_closing():
            self.active = True
            self.send(data, len(data), None, data)

    def send_deferred(self):
        """What waited for the end of this turn, before anything else is written."""
        data: bytes = self._deferred
        if len(data) > 0:
            self._deferred = b""
            self.write(data)

    def send(self, p, count, out, data):
        """Send as much as the system accepts; the rest is the transport's, and so is any error."""
        sent: cython.Py_ssize_t = 0
        if self._fd >= 0 and self._unsent_bytes() == 0:
            sent = send_now(self._fd, p, count)
        if out is not None:
            if sent == count:
                out.clear()
                return 0
            data = out.take()
        if sent < count:
            self._write(data[sent:] if sent > 0 else data)
            self.owner.note_unsent()
        return 0
