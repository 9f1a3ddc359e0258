"""The interface between a connection and the code that parses its bytes into commands.

A connection calls its frame reader once per read. A frame reader may execute requests itself (the broker's fast path)
and return their answers as bytes; it returns all other commands for the handlers. Requests it executes pass no check
and no hook, so it must return the requests that those need to see.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder

if TYPE_CHECKING:
    from rocketq.remoting.connection import Connection


class FrameReader(Protocol):
    def __call__(self, connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
        """Process the bytes of one read; return (bytes to write, commands for the handlers). Never awaits.

        State between reads is kept in `connection.reader_state`; the size of an unfinished frame is reported with
        `connection.set_unfinished_bytes`. A reader that keeps whole frames, because the returned commands must be
        handled first or the peer reads too slowly, sets `connection.has_unread_frames` and is called again with no
        bytes. Bytes that are no frame raise RemoteProtocolError; if commands before them are returned, the reader calls
        `connection.close_after_read` instead.
        """
        ...


def read_frames(connection: Connection, data: bytes) -> tuple[bytes, Sequence[Command]]:
    """The frame reader without a fast path: all commands go to the handlers."""
    decoder = connection.reader_state
    if decoder is None:
        decoder = connection.reader_state = FrameDecoder(
            connection.limits.frame_bytes_max, connection.limits.header_bytes_max
        )
    commands = decoder.feed(data)
    if decoder.pending_bytes != connection.unfinished_bytes:
        connection.set_unfinished_bytes(decoder.pending_bytes)
    if decoder.failure is not None:
        connection.close_after_read(str(decoder.failure))
    return b"", commands
