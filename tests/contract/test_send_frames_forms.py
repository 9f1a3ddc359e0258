"""The kernel's two forms take, refuse and answer the same send frames, whatever is in them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rocketq.kernel.loading import MODULES
from tests.contract.test_kernel_forms import needs_compiled

DRIVER = """
import hashlib, mmap, random, sys
from rocketq.kernel.appender import Appender
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.index_units import IndexTail
from rocketq.kernel.queue_units import QueueTail
from rocketq.kernel.send_frames import SendFrames, SendRoute

HOST = b"\\x7f\\0\\0\\1\\0\\0\\x2a\\x9f"
PIECES = (b"7F00000100002A9F", b'{"id":"', b'","q":"', b'","o":"', b'","t":"', b'","n":', b"}")
HEADER = (
    '{"code":310,"extFields":{"a":"p","b":"%s","c":"TBW102","d":"4","e":"%d","f":"0","g":"1794744119889","h":"0",'
    '"i":"%s","j":"0","k":"false","m":"false","n":"broker-a"},"flag":%d,"language":"JAVA","opaque":%d,'
    '"serializeTypeCurrentRPC":"JSON","version":%d}'
)

def frame(choice):
    values = ["KEYS", "UNIQ_KEY", "TAGS", "WAIT", "a", "b" * 30, "TIMER_X", "DELAY", "CLUSTER", "TRAN_MSG"]
    weights = [9, 9, 9, 9, 9, 9, 1, 1, 1, 1]
    items = [
        choice.choices(values, weights)[0] + "\\\\u0001"
        + choice.choice(["x", "", "k 1", "\\\\t", "\\\\u00e9", "v" * 50])
        for _ in range(choice.randrange(6))
    ]
    text = "\\\\u0002".join(items)
    header = HEADER % (choice.choice(["T", "T", "U"]), choice.randrange(4), text, choice.choice([0, 0, 2, 1]),
                       choice.randrange(-99, 1 << 31), choice.choice([407, 479]))
    header = bytearray(header.encode())
    if choice.random() < 0.5:
        for _ in range(choice.randrange(1, 4)):
            header[choice.randrange(len(header))] = choice.randrange(256)
    body = choice.randbytes(choice.randrange(300))
    head = len(header) if choice.random() < 0.97 else choice.randrange(1 << 25)
    length = 4 + len(header) + len(body) if choice.random() < 0.97 else choice.randrange(-9, 1 << 25)
    return (length & 0xFFFFFFFF).to_bytes(4, "big") + head.to_bytes(4, "big") + bytes(header) + body

class Owner:
    def attach_file(self): raise AssertionError("no room")
    make_room = attach_file

choice = random.Random(int(sys.argv[1]))
appender = Appender(HOST)
appender.attach_segment(MappedBuffer(mmap.mmap(-1, 1 << 20), 0), 0)
appender.index = IndexTail(MappedBuffer(mmap.mmap(-1, 1 << 20), 0), 100, 40_000)
tails = []
for number in range(3):
    tail = QueueTail(b"T", number, Owner())
    tail.attach(MappedBuffer(mmap.mmap(-1, 1 << 16), 0), 3000)
    tails.append(tail)
frames = SendFrames(appender, PIECES, b"C", 4096, 1 << 20, 450)
frames.add_route(SendRoute(b"T", [*tails, None], 2))
for step in range(1500):
    data = b"".join(frame(choice) for _ in range(choice.randrange(1, 6)))
    data = data[: len(data) - choice.choice([0, 0, 0, 1, 7, 40])]
    consumed = frames.feed(data, HOST, 1_700_000_000_000 + step)
    print(consumed, frames.cold, frames.missed, frames.taken, hashlib.sha1(frames.take_answers()).hexdigest())
print(hashlib.sha1(appender.segment.bytes_at(0, appender.position)).hexdigest(), appender.index.count)
"""


def run(form: str, seed: int) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER.replace("\\\\", "\\"), str(seed)],
        env={**os.environ, "ROCKETQ_KERNEL": form},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


@needs_compiled
@pytest.mark.parametrize("seed", range(4))
def test_both_forms_agree_on_every_frame(seed: int) -> None:
    """Goal: damaged, odd and plain frames alike; of the plain ones many must have been taken."""
    assert "send_frames" in MODULES
    compiled, interpreted = run("compiled", seed), run("interpreted", seed)
    assert compiled == interpreted
    assert int(compiled[-2].split("]")[-1].split()[0]) > 80
