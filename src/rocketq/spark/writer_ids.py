"""Unique keys of the messages that a worker process sends, over all of its tasks."""

from __future__ import annotations

import os
import socket
import time
import zlib

from rocketq.client.core.messages import month_start_ms


class IdSource:
    """Host, process and chance make the head, time and a count the sequence: two attempts of a task never share one."""

    def __init__(self) -> None:
        host = zlib.crc32(socket.gethostname().encode()).to_bytes(4, "big")
        process = (os.getpid() & 0xFFFF).to_bytes(2, "big")
        self.head = (host + process + os.urandom(4)).hex().upper().encode()
        self.sequence = 0

    def begin(self, now_ms: int) -> int:
        """The start of the next run of ids; pass its end to end()."""
        self.sequence = max(self.sequence, (now_ms - month_start_ms(now_ms)) << 16)
        return self.sequence

    def end(self, sequence: int) -> None:
        self.sequence = sequence

    def one(self) -> str:
        sequence = self.begin(time.time_ns() // 1_000_000)
        self.end(sequence + 1)
        return f"{self.head.decode()}{sequence:012X}"


_sources: dict[int, IdSource] = {}


def id_source() -> IdSource:
    """This process's own; workers are forked, so one that was made before a fork is the parent's."""
    if os.getpid() not in _sources:
        _sources.clear()
        _sources[os.getpid()] = IdSource()
    return _sources[os.getpid()]
