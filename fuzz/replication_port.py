"""Fuzz the fenced replication port: `python fuzz/replication_port.py --seconds 60 [--seed 1]`.

A child process listens as the master of a group. Peers send it random bytes, damaged and valid frames in any order,
halves of frames and large lengths, with and without a valid authentication. Throughout:

- the process lives, and its epoch and log stay as they are;
- a slave that knows the secret gets its challenge within 200 ms (p99);
- afterwards the memory is within 64 MiB of what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import random
import statistics
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from rocketq.replication.epochs import EpochList, LogShape
from rocketq.replication.fenced_auth import AuthRequest, Credentials, StreamIdentity, encode_auth_request, make_proof
from rocketq.replication.fenced_frames import (
    Frame,
    FrameDecoder,
    FrameType,
    Introduction,
    ack,
    encode_frame,
    encode_introduction,
)
from rocketq.replication.fenced_listener import FencedListener, Mastership
from rocketq.replication.fenced_master import Acked
from rocketq.replication.replica_files import FencedStore
from rocketq.runtime.clock import SystemClock
from rocketq.store import Store, StoreConfig

EPOCH: Final = 7
SEGMENT_BYTES: Final = 1 << 20
CREDENTIALS: Final = Credentials(bytes(range(32)), {1: "master's code", 2: "slave's code"})
IDENTITY: Final = StreamIdentity("c", "b", EPOCH, 1, "master's code", 2, "slave's code")
SLAVE: Final = Introduction("c", "b", 2, "slave's code", SEGMENT_BYTES, LogShape(0, 0, EpochList()))
MEMORY_BYTES_MAX: Final = 64 << 20
PROBE_MS_MAX: Final = 200
INTERESTING: Final = (0, 1, 2, 0x7F, 0x80, 0xFF)


class _Events:
    """A master around the listener, for which nothing must ever change."""

    def slave_acked(self, ack: Acked) -> None:
        assert ack.written == 0, ack

    def slave_gone(self, broker_id: int) -> None: ...

    def control_outdated(self) -> None: ...


def serve(root: Path, ready: Connection) -> None:
    """The child: listens until its parent closes the pipe."""

    async def run() -> None:
        with Store.open(StoreConfig(root=root, segment_bytes=SEGMENT_BYTES, message_bytes_max=16 << 10)) as store:
            own = FencedStore(store, "c", "b")
            listener = FencedListener(own, SystemClock(), _Events(), encode_tables=lambda: b"{}")
            introduction = Introduction("c", "b", 1, "master's code", SEGMENT_BYTES, own.shape)
            listener.lead(Mastership(EPOCH, introduction, lambda: 0, lambda: CREDENTIALS))
            await listener.start("127.0.0.1", 0)
            ready.send(listener.port)
            while not ready.poll():
                listener.tick()
                await asyncio.sleep(0.02)
            assert (store.log_end, own.load_state().epoch) == (0, 0)
            await listener.stop()

    asyncio.run(run())
    ready.send("ended")


@contextlib.contextmanager
def target() -> Iterator[tuple[int, multiprocessing.Process]]:
    """A listening child and its port; it must end without an error."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    with tempfile.TemporaryDirectory() as folder:
        child = multiprocessing.get_context("spawn").Process(target=serve, args=(Path(folder), theirs))
        child.start()
        try:
            port = ours.recv()
            yield port, child  # type: ignore[misc]
            assert child.is_alive(), "the process has ended"
            ours.send("end")
            assert ours.recv() == "ended"
            child.join(10)
        finally:
            child.kill()


def memory_bytes(child: multiprocessing.Process) -> int:
    pages = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def random_frame(rng: random.Random) -> bytes:
    """A frame that is valid by itself, with any type, epoch, offsets and body."""
    numbers = (0, 1, EPOCH, EPOCH + 1, (1 << 31) - 1)
    body = rng.choice((b"", b"{}", rng.randbytes(32), rng.randbytes(64), b"[" * 500, encode_introduction(SLAVE)))
    return encode_frame(
        Frame(
            type=rng.choice(list(FrameType)),
            master_epoch=rng.choice(numbers),
            flags=rng.choice((0, 1, -1)),
            data_epoch=rng.choice(numbers),
            epoch_start=rng.choice(numbers),
            offset=rng.choice((*numbers, (1 << 63) - 1)),
            second=rng.choice((*numbers, (1 << 63) - 1)),
            body=body,
        )
    )


def damaged(frame: bytes, rng: random.Random) -> bytes:
    data = bytearray(frame)
    for _ in range(rng.randint(0, 3)):
        data[rng.randrange(len(data))] = rng.choice((*INTERESTING, rng.randrange(256)))
    if rng.random() < 0.3:
        data[40:44] = struct.pack(">i", rng.choice((-1, 1 << 30, 64 << 20, 4096)))
    return bytes(data[: rng.randint(0, len(data))] if rng.random() < 0.3 else data)


async def authenticate(port: int, nonce: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
    """Connect and ask; the challenge's body."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = encode_auth_request(AuthRequest("c", "b", 1, 2, nonce))
    writer.write(encode_frame(Frame(type=FrameType.AUTH_REQUEST, master_epoch=EPOCH, body=request)))
    decoder, frames = FrameDecoder(), list[Frame]()
    while not frames:
        data = await reader.read(4096)
        assert data, "a valid request was not answered"
        frames += decoder.feed(data)
    assert frames[0].type is FrameType.AUTH_CHALLENGE
    return reader, writer, frames[0].body


async def one_peer(port: int, rng: random.Random) -> None:
    """One connection of an attacker; every third one has authenticated itself."""
    with contextlib.suppress(ConnectionError):
        if rng.random() < 0.33:
            nonce = rng.randbytes(32)
            reader, writer, challenge = await authenticate(port, nonce)
            proof = make_proof(CREDENTIALS, "slave", IDENTITY, nonce, challenge[:32])
            writer.write(encode_frame(Frame(type=FrameType.AUTH_PROOF, master_epoch=EPOCH, body=proof)))
            if rng.random() < 0.5:
                shape = LogShape(0, rng.choice((0, 1 << 40)), EpochList())
                body = encode_introduction(replace(SLAVE, shape=shape))
                writer.write(encode_frame(Frame(type=FrameType.HELLO, master_epoch=EPOCH, body=body)))
                writer.write(encode_frame(ack(EPOCH, rng.choice((0, 0, 1 << 40)), 0)))
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for _ in range(rng.randint(1, 20)):
                frame = random_frame(rng)
                writer.write(frame if rng.random() < 0.4 else damaged(frame, rng))
                if rng.random() < 0.1:
                    writer.write(rng.randbytes(rng.choice((1, 100, 1 << 16))))
            await writer.drain()
            async with asyncio.timeout(rng.choice((0.01, 0.1))):
                while await reader.read(1 << 16):
                    pass
        except TimeoutError:
            pass
        finally:
            writer.close()


async def attack(port: int, seconds: float, seed: int) -> tuple[int, list[float]]:
    """How many connections were made, and how many ms each probe took."""
    rng, count, probes_ms = random.Random(seed), 0, list[float]()
    ends = time.monotonic() + seconds

    async def attacker(own: random.Random) -> None:
        nonlocal count
        while time.monotonic() < ends:
            await one_peer(port, own)
            count += 1

    async def probe() -> None:
        while time.monotonic() < ends:
            began = time.monotonic()
            with contextlib.suppress(ConnectionError):
                _, writer, _ = await authenticate(port, os.urandom(32))
                probes_ms.append(1000 * (time.monotonic() - began))
                writer.close()
            await asyncio.sleep(0.02)

    await asyncio.gather(probe(), *(attacker(random.Random(rng.random())) for _ in range(8)))
    return count, probes_ms


def fuzz(seconds: float, seed: int) -> str:
    """Attack a fresh target; what was seen. AssertionError when an invariant is broken."""
    with target() as (port, child):
        asyncio.run(attack(port, min(1, seconds / 4), seed + 1))  # buffers and code that every run needs
        before = memory_bytes(child)
        count, probes_ms = asyncio.run(attack(port, seconds, seed))
        time.sleep(0.2)
        grown = memory_bytes(child) - before
        p99_ms = statistics.quantiles(probes_ms, n=100)[98]
        assert grown < MEMORY_BYTES_MAX, f"seed {seed}: {grown >> 20} MiB more than before"
        assert p99_ms < PROBE_MS_MAX, f"seed {seed}: a challenge took {p99_ms:.0f} ms (p99)"
    return f"{count} connections, {len(probes_ms)} probes, p99 {p99_ms:.1f} ms, memory {grown / (1 << 20):+.1f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"{fuzz(arguments.seconds, arguments.seed)}, seed {arguments.seed}")


if __name__ == "__main__":
    main()
