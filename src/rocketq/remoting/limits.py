"""What a connection may take up."""

from __future__ import annotations

from dataclasses import dataclass

from rocketq.protocol.frame import FRAME_BYTES_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Of every connection of one server or pool, except the first two, which are of all of them together."""

    connections_max: int = 0
    """A server drops who comes beyond it. 0: half of the files that the process may open, as the rest is needed too."""

    unfinished_bytes_max: int = 512 << 20
    """Held of frames whose end has not come; a connection that would go beyond it is dropped."""
    frame_bytes_max: int = FRAME_BYTES_MAX
    idle_ms: int = 120_000
    """Closed after so long without a read or a write."""
    write_high_bytes: int = 1 << 20
    """With more than this unsent, a server stops reading from the peer and answering it."""
    write_bytes_max: int = 64 << 20
    """With more than this unsent, the connection is dropped."""
    calls_max: int = 65_535
    """Requests of ours that wait for their answers."""
    connect_timeout_ms: int = 3_000
