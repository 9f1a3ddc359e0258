"""Registrations that are small on the wire and expensive to read: rejected, or read in short steps."""

from __future__ import annotations

import time
import zlib
from collections.abc import Generator
from typing import Any

import pytest

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.registration import registration_steps

STEP_S_MAX = 0.03  # up to 7 ms on an idle machine; one step without limits takes seconds
VERSION = 479


def text(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def longest_step_s(steps: Generator[None, None, Any]) -> float:
    """CPU time, so that a busy machine does not count."""
    longest = 0.0
    while True:
        start_s = time.thread_time()
        try:
            next(steps)
        except StopIteration:
            return max(longest, time.thread_time() - start_s)
        finally:
            longest = max(longest, time.thread_time() - start_s)


BOMB = zlib.compress(bytes(403 << 20), 9)
LONG_VERSION = zlib.compress(text(b'{"counter":' + b" " * (60 << 20) + b"1}"), 9)
LONG_TOPIC = zlib.compress(
    text(b"{}") + (1).to_bytes(4, "big") + text(b"T 1 1 6 SINGLE_TAG " + b"{a:1}" * (8 << 20)), 9
)
LONG_SERVERS = zlib.compress(text(b"{}") + bytes(4) + text(b"[" + b"'a'," * (4 << 20) + b"]"), 9)


@pytest.mark.parametrize("body", [BOMB, LONG_VERSION, LONG_TOPIC, LONG_SERVERS], ids=lambda body: str(len(body)))
def test_a_compressed_registration_that_grows_is_rejected_in_short_steps(body: bytes) -> None:
    def steps() -> Generator[None, None, None]:
        with pytest.raises(RemoteProtocolError):
            yield from registration_steps(body, compressed=True, version=VERSION)

    assert longest_step_s(steps()) < STEP_S_MAX


def test_a_long_registration_in_fastjsons_dialect_is_read_in_short_steps() -> None:
    topics = ",".join(f"'T{number}':{{topicName:'T{number}',perm:6}}" for number in range(5_000))
    body = f"{{topicConfigSerializeWrapper:{{topicConfigTable:{{{topics}}}}}}}".encode()
    steps = registration_steps(body, compressed=False, version=VERSION)
    assert longest_step_s(steps) < STEP_S_MAX
