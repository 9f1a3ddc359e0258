"""The seam between a socket and what understands its bytes.

A server calls its feed once per read. The feed answers requests of the fast path itself, as bytes to write, and
returns all other commands for the handlers. What it answers itself passes no check and no hook: a feed that must
respect them returns the command instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder

if TYPE_CHECKING:
    from rocketq.remoting.connection import Connection


class Feed(Protocol):
    def __call__(self, connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
        """Bytes of one read in, (bytes to write, commands for the handlers) out; never awaits.

        What it must remember between reads is in `connection.feed_state`; how much of an unfinished frame that is, it
        tells `connection.hold`. One that keeps whole frames to itself, because what it returns must be handled first or
        the peer is behind with reading, sets `connection.feed_waits` and is called again with no bytes. Bytes that are
        no frame raise RemoteProtocolError, or, when commands before them are returned, go to `connection.finish`.
        """
        ...


def feed_frames(connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
    """The feed without a fast path: every command goes to the handlers."""
    decoder = connection.feed_state
    if decoder is None:
        decoder = connection.feed_state = FrameDecoder(connection.limits.frame_bytes_max)
    commands = decoder.feed(data)
    if decoder.pending_bytes != connection.unfinished_bytes:
        connection.hold(decoder.pending_bytes)
    if decoder.failure is not None:
        connection.finish(str(decoder.failure))
    return b"", commands
