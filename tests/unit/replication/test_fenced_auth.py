"""Proofs of replicas, and the ranges of the log that they compare."""

from __future__ import annotations

from dataclasses import fields, replace

from hypothesis import given
from hypothesis import strategies as st

from rocketq.replication.fenced_auth import (
    SAMPLE_BYTES,
    SAMPLES,
    TAIL_BYTES,
    Credentials,
    StreamIdentity,
    clip_ranges,
    is_proof,
    make_proof,
    sample_ranges,
)

SECRET = Credentials(bytes(range(32)), {})
IDENTITY = StreamIdentity("cluster", "broker-a", 7, 1, "code 1", 2, "code 2")
NONCES = bytes(32), bytes(range(32))


def test_a_proof_depends_on_every_part() -> None:
    """Goal: side, secret, each field of the identity, and both nonces in their order."""
    proof = make_proof(SECRET, "slave", IDENTITY, *NONCES)
    assert is_proof(proof, SECRET, "slave", IDENTITY, *NONCES)
    others = [
        make_proof(SECRET, "master", IDENTITY, *NONCES),
        make_proof(Credentials(bytes(32), {}), "slave", IDENTITY, *NONCES),
        make_proof(SECRET, "slave", IDENTITY, *reversed(NONCES)),
        *(make_proof(SECRET, "slave", with_other(each.name), *NONCES) for each in fields(IDENTITY)),
    ]
    assert len({proof, *others}) == 1 + len(others)
    assert not any(is_proof(other, SECRET, "slave", IDENTITY, *NONCES) for other in others)
    assert not is_proof(b"", SECRET, "slave", IDENTITY, *NONCES)


def with_other(name: str) -> StreamIdentity:
    """The identity with another value of one field."""
    value = getattr(IDENTITY, name)
    return replace(IDENTITY, **{name: value + 1 if isinstance(value, int) else value + "x"})


def test_parts_cannot_be_moved_between_fields() -> None:
    """Goal: "ab" + "c" is another identity than "a" + "bc"."""
    one, other = (replace(IDENTITY, cluster=a, broker_name=b) for a, b in (("ab", "c"), ("a", "bc")))
    assert make_proof(SECRET, "slave", one, *NONCES) != make_proof(SECRET, "slave", other, *NONCES)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40), st.binary(min_size=32, max_size=32))
def test_compared_ranges_are_inside_the_log(start: int, size: int, seed: bytes) -> None:
    """Goal: the tail is always compared, all of a small log, samples of a large one."""
    end = start + size
    ranges = sample_ranges(start, end, seed)
    assert all(start <= offset < offset + length <= end for offset, length in ranges)
    assert bool(ranges) == bool(size)
    if size:
        assert ranges[0] == (max(start, end - TAIL_BYTES), min(size, TAIL_BYTES))
    covered = sum(length for _, length in ranges)
    assert covered == min(size, TAIL_BYTES + SAMPLES * SAMPLE_BYTES)
    clipped = clip_ranges(ranges, start + size // 2)
    assert all(length >= 0 and offset + length <= max(offset, start + size // 2) for offset, length in clipped)
