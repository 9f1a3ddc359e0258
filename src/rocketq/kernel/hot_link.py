"""A connection's bytes, from the event loop straight to the kernel, and its answers straight to the socket.

A link takes the place of its connection as the transport's protocol. What the kernel can serve whole passes no other
function; everything else goes to the connection, which sees no difference.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.appender import Appender
    from rocketq.kernel.hot_frames import HotFrames
    from rocketq.kernel.primitives import send_now

    LINK_READ_BYTES_MAX = 192 << 10  # of more, which a loop reads at once, it may have more yet: then others come first
    DEFERRED_BYTES_MAX = 4 << 10  # an answer of that size keeps its peer busy for a while


@cython.cclass
class HotDesk:
    """What all links of a port share: the kernel's frames, and the facts that must hold for serving without asking.

    Its owner says with `expect` what it has looked at; a fact that is another one since sends links to their
    connections, until `expect` is called again; so does a guard, but for one that `trust`
    was called for. `settle()` is called in the loop's next turn, once until `settling` is
    taken back: something is stored that somebody waits for (`stored` says that anything is), pulls were answered, or
    answers must wait (`held`: pairs of a link and its answers).
    """

    def __init__(self, frames: HotFrames, writer, dispatcher, now_ns, call_soon, settle, waiting, listeners):
        self.frames = frames
        self._sends = frames.sends
        self._pulls = frames.pulls
        self._writer = writer
        self._acquire = writer.lock.acquire
        self._release = writer.lock.release
        self._dispatcher = dispatcher
        self._now_ns = now_ns
        self._call_soon = call_soon
        self._settle = settle
        self._waiting = waiting
        self._listeners = listeners
        self._facts = None
        self._trusted = self._monotonic_ns = None
        self._trusted_to_ns = 0
        self.may_send = False
        self.sends_from_ms = 0
        self.settling = self.stored = False
        self.held = []
        self._last = None
        self._deferring = []

    def expect(self, facts):
        """Serve while each (object, name, value) is so, in that very value; None: not at all."""
        self._facts = facts

    def trust(self, guard, to_ns: cython.longlong, monotonic_ns):
        """This guard, when it is the only one, refuses nothing that we serve before that time. None: no guard does."""
        self._trusted = guard
        self._trusted_to_ns = to_ns
        self._monotonic_ns = monotonic_ns

    def is_guarded(self, guards):
        now_ns: cython.longlong
        if len(guards) == 0:
            return False
        if len(guards) > 1 or self._trusted is None or guards[0] is not self._trusted:
            return True
        now_ns = self._monotonic_ns()
        return now_ns >= self._trusted_to_ns

    def holds(self):
        if self._facts is None or self._dispatcher.hooks or self.is_guarded(self._dispatcher.guards):
            return False
        for owner, name, value in self._facts:
            if getattr(owner, name) is not value:
                return False
        return True

    def take_held(self):
        """The answers that wait since the last call, and how many requests they are to."""
        held, self.held = self.held, []
        count: cython.longlong = self._sends.held_count
        self._sends.held_count = 0
        return held, count

    def is_current(self):
        """Whether all that was expected is still so."""
        return self.holds()

    def is_awaited(self):
        """Whether what is stored must be told at once. Who begins to wait later looks for itself, and the flusher tells
        from time to time whatever was not told."""
        return self._sends.durable or len(self._listeners) > 0 or self._waiting()

    def serve_rest(self, link: HotLink):
        """For the owner, which holds the lock and has looked at everything: go on in the link's own data."""
        link.at = self.run(link, link.data, link.at)
        return self._sends.out.take()

    def serve(self, link, data):
        """How far the kernel came; -1 when it may not serve."""
        self._acquire()
        try:
            if not self.holds():
                return -1
            return self.run(link, data, 0)
        finally:
            self._release()

    def run(self, link, data, at):
        now_ms: cython.longlong = self._now_ns() // 1_000_000
        done: cython.bint = False
        before: cython.longlong = self._sends.taken
        self._sends.open = self.may_send and now_ms >= self.sends_from_ms
        if self._sends.durable:
            self._sends.held_max = self._dispatcher.room
        try:
            at = self.frames.run(data, at, link.born_host, now_ms)
            done = True
        finally:  # whatever happens, nobody else may get these answers
            if not done:
                self._sends.out.take()
            self.note(link, before)
        return at

    def note(self, link, before):
        """What must be known before anybody else has the lock, and what can be told later."""
        appender: Appender = self._sends.appender
        if self._sends.taken > before:
            self.stored = True
            if appender.index is None:
                self._writer.stored_by_kernel()
            else:
                self._writer.last_record = appender.last_offset
        if self._sends.held.length > 0:
            self.held.append((link, self._sends.held.take()))
        if not self.settling and (self._pulls.served or (self.stored and self.is_awaited())):
            self.settling = True
            self._call_soon(self._settle)
        return 0

    def is_alone(self, link):
        """Whether nobody else was served since this link was."""
        alone: cython.bint = self._last is link or self._last is None
        self._last = link
        return alone

    def defer(self, link):
        """Its answer goes with all others of this turn of the loop. Where each is sent at once, a peer that waits for
        many is woken for every single one."""
        if len(self._deferring) == 0:
            self._call_soon(self.send_deferred)
        self._deferring.append(link)
        return 0

    def forget(self, link):
        if self._last is link:
            self._last = None

    def send_deferred(self):
        link: HotLink
        deferring: list = self._deferring
        self._deferring = []
        for link in deferring:
            link.send_deferred()


@cython.cclass
class HotLink:
    """A connection's end at the desk: what was read and not looked at yet (`data` from `at` on), and its socket.

    `decoding`: what comes next is the decoder's. `served_to`: the kernel has served a read up to there and stopped, the
    rest is for the owner (-1: it has not). `active`: something was read or written since last asked.
    """

    def __init__(self, desk: HotDesk, owner, decoder, born_host):
        self._desk = desk
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
        """All that was not looked at yet."""
        rest = self.data[self.at :] + more
        self.data = b""
        self.at = 0
        return rest

    @property
    def rest_bytes(self):
        return len(self.data) - self.at

    # called by the event loop

    def data_received(self, data: bytes):
        desk: HotDesk = self._desk
        at: cython.Py_ssize_t
        if self.decoding or self.paused or len(self.data) > 0 or len(data) >= LINK_READ_BYTES_MAX:
            self.owner.data_received(data)
            return
        self.active = True
        try:
            at = desk.serve(self, data)
        except Exception:  # a fault of ours ends this connection, not the process
            self.owner.fail()
            return
        if at == len(data) and desk.frames.cold_at < 0 and not desk._sends.missed and not desk._pulls.missed:
            if desk._sends.out.length > 0:
                self.answer(desk._sends.out)
            return
        self.served_to = at
        self.owner.data_received(data)
        if self.served_to >= 0:  # it did not want to know; nobody else may get these answers
            self.served_to = -1
            desk._sends.out.clear()

    def answer(self, out):
        if len(self._deferred) > 0:
            self._deferred += out.take()
        elif self._desk.is_alone(self) or out.length >= DEFERRED_BYTES_MAX:
            self.send(out.p, out.length, out, None)
        else:
            self._deferred = out.take()
            self._desk.defer(self)
        return 0

    def eof_received(self):
        self.send_deferred()
        return self.owner.eof_received()

    def connection_lost(self, error):
        self._fd = -1
        self._transport = self._unsent_bytes = self._write = self._is_closing = None
        self._deferred = b""
        self._desk.forget(self)
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
        """As much as the system takes is sent at once, what is left is the transport's, and so is any error."""
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
        return 0
