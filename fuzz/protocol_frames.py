"""Fuzz the wire protocol: `python fuzz/protocol_frames.py --seconds 60 [--seed 1]`.

Damaged copies of the captured frames are fed in. For every input:

- it parses, or RemoteProtocolError is raised, nothing else; whole or byte by byte the same comes out;
- what parsed is written, read and written again as the same bytes;
- its typed header, its JSON body and its records read, or RemoteProtocolError is raised.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
from pathlib import Path

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.assignment import LockRequest
from rocketq.protocol.bodies.clients import ConsumerConnections, Heartbeat, RunningConsumer
from rocketq.protocol.bodies.offsets import ConsumerStatus, ResetOffsets
from rocketq.protocol.bodies.registration import decode_registration
from rocketq.protocol.bodies.routes import ClusterTable, TopicRoute
from rocketq.protocol.bodies.stats import ConsumeStats
from rocketq.protocol.bodies.topics import TopicStats
from rocketq.protocol.command import Command
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.headers.send import decode_send
from rocketq.protocol.messages import decode_batch, decode_records
from rocketq.protocol.properties import decode_properties
from rocketq.protocol.requests import HEADERS

CORPUS = Path(__file__).parent.parent / "tests" / "golden" / "frames"
INTERESTING = b"\x00\x01\x02\x7f\x80\xff{}[]:,\"'\\0-9.eE$/"
BODIES = (
    ClusterTable,
    ConsumeStats,
    ConsumerConnections,
    ConsumerStatus,
    Heartbeat,
    LockRequest,
    ResetOffsets,
    RunningConsumer,
    TopicRoute,
    TopicStats,
)


def load_corpus() -> list[bytes]:
    return [path.read_bytes() for path in sorted(CORPUS.glob("*.bin")) if path.stat().st_size < 8192]


def damage(frame: bytes, corpus: list[bytes], rng: random.Random) -> bytes:
    """A copy with some bytes changed, cut out, doubled or taken from elsewhere, mostly with the right length."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data))
        end = min(len(data), at + rng.choice((1, 2, 4, 16)))
        match rng.randrange(5):
            case 0:
                data[at] = rng.randrange(256)
            case 1:
                data[at] = rng.choice(INTERESTING)
            case 2:
                del data[at:end]
            case 3:
                data[at:at] = data[at:end] * rng.choice((1, 2, 50))
            case 4:
                other = rng.choice(corpus)
                start = rng.randrange(len(other))
                data[at:end] = other[start : start + 16]
        data = data or bytearray(b"\x00")
    if rng.random() < 0.8:
        data[:4] = (len(data) - 4 if len(data) >= 4 else 0).to_bytes(4, "big")
    return bytes(data)


def check(data: bytes) -> None:
    """Raise AssertionError, or anything that is no RemoteProtocolError, when an invariant is broken."""
    whole, single = run([data]), run([data[at : at + 1] for at in range(len(data))])
    assert whole == single, "chunking mattered"
    for command in whole[0]:
        written = encode_command(command)
        (again,) = FrameDecoder().feed(written)
        assert encode_command(again) == written, "not stable"
        check_contents(command)


def run(chunks: list[bytes]) -> tuple[list[Command], str]:
    decoder, commands = FrameDecoder(), []
    with contextlib.suppress(RemoteProtocolError):
        for chunk in chunks:
            commands += decoder.feed(chunk)
    return commands, str(decoder.failure)


def check_contents(command: Command) -> None:
    with contextlib.suppress(RemoteProtocolError):
        decode_send(command).encode()
    if command.code in HEADERS:
        with contextlib.suppress(RemoteProtocolError):
            HEADERS[command.code].decode(command.ext_fields).encode()  # type: ignore[index]
    for kind in BODIES if command.body[:1] == b"{" else ():
        with contextlib.suppress(RemoteProtocolError):
            kind.decode(command.body).encode()
    for compressed in (False, True):
        with contextlib.suppress(RemoteProtocolError):
            decode_registration(command.body, compressed=compressed, version=command.version).encode_compressed(479)
    with contextlib.suppress(RemoteProtocolError):
        decode_batch(command.body)
    with contextlib.suppress(RemoteProtocolError):
        for record in decode_records(command.body):
            decode_properties(record.properties)


def fuzz(seconds: float, seed: int) -> int:
    """Run for this long; the number of inputs tried."""
    rng, corpus, count = random.Random(seed), load_corpus(), 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        data = damage(rng.choice(corpus), corpus, rng)
        try:
            check(data)
        except Exception:
            print(f"seed {seed}, input {count}: {data.hex()}")
            raise
        count += 1
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"{fuzz(arguments.seconds, arguments.seed)} inputs held, seed {arguments.seed}")


if __name__ == "__main__":
    main()
