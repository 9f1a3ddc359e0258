"""Mutual authentication of the fenced stream: challenge and response with HMAC-SHA256. Pure.

slave  -> master   AUTH_REQUEST     cluster, broker name, both ids, the slave's nonce; header: the epoch it follows
master -> slave    AUTH_CHALLENGE   the master's nonce, HMAC(secret, "master", identity, nonces)
slave  -> master   AUTH_PROOF       HMAC(secret, "slave", identity, nonces)

The identity contains the check codes that the control store holds for both ids. So a proof is valid for one pair of
replicas, one direction, one epoch and one connection.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Mapping
from dataclasses import astuple, dataclass, field
from hashlib import sha256
from typing import Final, Literal

from rocketq.errors import RemoteProtocolError

NONCE_BYTES: Final = 32
PROOF_BYTES: Final = 32
SECRET_BYTES_MIN: Final = 16
_NAME_CHARS_MAX: Final = 256
TAIL_BYTES: Final = 1 << 20
SAMPLES: Final = 16
SAMPLE_BYTES: Final = 64 << 10
DIGEST_BYTES: Final = 32
Side = Literal["master", "slave"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """The secret of a group, and the check code of every registered replica."""

    secret: bytes = field(repr=False)
    check_codes: Mapping[int, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class StreamIdentity:
    """Both ends of a stream and the epoch it belongs to."""

    cluster: str
    broker_name: str
    epoch: int
    master_id: int
    master_code: str
    slave_id: int
    slave_code: str


@dataclass(frozen=True, slots=True)
class AuthRequest:
    cluster: str
    broker_name: str
    master_id: int
    slave_id: int
    nonce: bytes


def make_proof(
    credentials: Credentials, side: Side, identity: StreamIdentity, slave_nonce: bytes, master_nonce: bytes
) -> bytes:
    signed = json.dumps(["rocketq-ha", side, *astuple(identity), slave_nonce.hex(), master_nonce.hex()])
    return hmac.digest(credentials.secret, signed.encode(), sha256)


def is_proof(
    given: bytes,
    credentials: Credentials,
    side: Side,
    identity: StreamIdentity,
    slave_nonce: bytes,
    master_nonce: bytes,
) -> bool:
    return hmac.compare_digest(given, make_proof(credentials, side, identity, slave_nonce, master_nonce))


def encode_auth_request(request: AuthRequest) -> bytes:
    return json.dumps(
        {
            "cluster": request.cluster,
            "brokerName": request.broker_name,
            "masterId": request.master_id,
            "slaveId": request.slave_id,
            "nonce": request.nonce.hex(),
        }
    ).encode()


def decode_auth_request(body: bytes) -> AuthRequest:
    """RemoteProtocolError for an invalid body."""
    try:
        fields = json.loads(body)
        request = AuthRequest(
            fields["cluster"],
            fields["brokerName"],
            fields["masterId"],
            fields["slaveId"],
            bytes.fromhex(fields["nonce"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        raise RemoteProtocolError("invalid authentication request") from None
    names = (request.cluster, request.broker_name)
    if (
        not all(isinstance(name, str) and len(name) <= _NAME_CHARS_MAX for name in names)
        or type(request.master_id) is not int
        or type(request.slave_id) is not int
        or len(request.nonce) != NONCE_BYTES
    ):
        raise RemoteProtocolError("invalid authentication request")
    return request


def sample_ranges(start: int, end: int, seed: bytes) -> tuple[tuple[int, int], ...]:
    """Ranges (offset, length) of [start, end) whose digests both ends compare: the tail, and samples of the rest."""
    tail = max(start, end - TAIL_BYTES)
    ranges = [(tail, end - tail)] if end > tail else []
    span = tail - start
    if 0 < span <= SAMPLES * SAMPLE_BYTES:
        ranges.append((start, span))
    elif span > 0:
        for number in range(SAMPLES):
            drawn = int.from_bytes(sha256(seed + bytes([number])).digest()[:8])
            ranges.append((start + drawn % (span - SAMPLE_BYTES + 1), SAMPLE_BYTES))
    return tuple(ranges)


def clip_ranges(ranges: tuple[tuple[int, int], ...], end: int) -> tuple[tuple[int, int], ...]:
    """The same without bytes at or after `end`."""
    return tuple((offset, max(0, min(length, end - offset))) for offset, length in ranges)
