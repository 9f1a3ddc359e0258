"""Attack a running NameServer or broker: `python fuzz/servers.py --target namesrv --seconds 60 [--seed 1]`.

Hostile peers send damaged frames, huge headers in both forms, relaxed JSON, compressed bombs, half frames, garbage TLS
hellos and requests whose answers they never read. The invariant:

- the process lives;
- a probe client is answered, 99 of 100 times within 200 ms;
- when the peers are gone, memory is within 64 MiB of what it was.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import FrameDecoder, encode_command

CORPUS = Path(__file__).parent.parent / "tests" / "golden" / "frames"
PROBE_MS_MAX = 200
GROWTH_BYTES_MAX = 64 << 20
PEERS = 8
_NAME_SERVER_CODES = (
    100,
    101,
    102,
    103,
    104,
    105,
    106,
    205,
    206,
    216,
    217,
    219,
    224,
    304,
    310,
    318,
    319,
    322,
    904,
    905,
)
_BROKER_CODES = (
    10,
    11,
    12,
    14,
    15,
    17,
    21,
    25,
    26,
    28,
    31,
    34,
    35,
    36,
    38,
    41,
    43,
    200,
    201,
    208,
    215,
    307,
    310,
    311,
    320,
    361,
)
_CODES = {"namesrv": _NAME_SERVER_CODES, "broker": _BROKER_CODES}
_TEXTS = ("", "T", "TBW102", "0", "-1", "2147483648", "x" * 300, "ä\ud800", "127.0.0.1:1", "true", "{}", "*")
_FIELDS = (
    "topic", "brokerName", "brokerAddr", "clusterName", "haServerAddr", "brokerId", "compressed", "bodyCrc32",
    "namespace", "key", "value", "group", "consumerGroup", "producerGroup", "queueId", "offset", "queueOffset",
    "maxMsgNums", "sysFlag", "commitOffset", "suspendTimeoutMillis", "subscription", "subVersion", "a", "b", "e", "i",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    frames: int
    probes: int
    quiet_p99_ms: float
    """Of the probe before the attack: what a busy machine adds."""
    probe_p99_ms: float
    probe_max_ms: float
    growth_bytes: int

    def faults(self) -> list[str]:
        """The parts of the invariant that do not hold."""
        faults = []
        if self.probe_p99_ms > PROBE_MS_MAX + self.quiet_p99_ms:
            faults.append(f"the p99 of the probe is {self.probe_p99_ms:.0f} ms, {PROBE_MS_MAX} ms are allowed")
        if self.growth_bytes > GROWTH_BYTES_MAX:
            faults.append(f"memory grew by {self.growth_bytes >> 20} MiB, {GROWTH_BYTES_MAX >> 20} MiB are allowed")
        return faults


class Frames:
    """Hostile input, the same for the same seed."""

    def __init__(self, target: str, seed: int) -> None:
        self._rng = random.Random(seed)
        self._codes = _CODES[target]
        self._bombs = [zlib.compress(bytes(size), 1) for size in (1 << 20, 200 << 20)]
        self._corpus = [path.read_bytes() for path in sorted(CORPUS.glob("*.bin")) if path.stat().st_size < 8192]
        self._makers: tuple[tuple[int, Callable[[], bytes]], ...] = (
            (40, self._request),
            (30, self._damaged),
            (3, self._huge_json_header),
            (3, self._huge_binary_header),
            (3, self._relaxed_header),
            (3, self._many_fields),
            (2, self._bomb),
            (2, self._long_values),
            (3, self._half_frame),
            (3, self._garbage),
            (2, self._relaxed_body),
            (2, self._settings),
        )

    def next(self) -> bytes:
        make = self._rng.choices([maker for _, maker in self._makers], [weight for weight, _ in self._makers])[0]
        return make()

    def _form(self) -> HeaderForm:
        return self._rng.choice((HeaderForm.JSON, HeaderForm.BINARY))

    def _request(self) -> bytes:
        rng = self._rng
        fields = {name: rng.choice(_TEXTS) for name in rng.sample(_FIELDS, rng.randint(0, len(_FIELDS)))}
        body = rng.choice((b"", b"{}", b"[]", b"null", rng.randbytes(100), b'{"a":' * 500))
        return self._encode(rng.choice(self._codes), fields, body)

    def _encode(self, code: int, fields: dict[str, str], body: bytes = b"") -> bytes:
        version = self._rng.choice((0, 355, 479))
        return encode_command(
            Command(code=code, opaque=7, ext_fields=fields, body=body, form=self._form(), version=version)
        )

    def _damaged(self) -> bytes:
        data = bytearray(self._rng.choice(self._corpus))
        for _ in range(self._rng.randint(1, 4)):
            data[self._rng.randrange(len(data))] = self._rng.randrange(256)
        return bytes(data)

    def _huge_json_header(self) -> bytes:
        text = "x" * self._rng.choice((100_000, 1 << 20, 12 << 20))
        return self._raw(0, f'{{"code":105,"opaque":1,"extFields":{{"topic":"{text}"}}}}'.encode())

    def _huge_binary_header(self) -> bytes:
        return self._raw(1, bytes(self._rng.choice((100_000, 1 << 20, 12 << 20))))

    def _relaxed_header(self) -> bytes:
        fields = ",".join(f"k{number}:'v'" for number in range(self._rng.choice((10, 300, 10_000))))
        return self._raw(0, f"{{code:105,opaque:1,extFields:{{{fields}}}}}".encode())

    def _many_fields(self) -> bytes:
        return self._encode(105, {f"k{number}": "" for number in range(self._rng.choice((500, 2_000, 8_000)))})

    def _bomb(self) -> bytes:
        return self._encode(103, self._broker_fields() | {"compressed": "true"}, self._rng.choice(self._bombs))

    def _long_values(self) -> bytes:
        topics = {f"T{number}": {"topicName": f"T{number}", "perm": 6} for number in range(20_000)}
        body = {"topicConfigSerializeWrapper": {"topicConfigTable": topics, "dataVersion": {"counter": 1}}}
        return self._encode(103, self._broker_fields(), json.dumps(body).encode())

    def _relaxed_body(self) -> bytes:
        topics = ",".join(f"T{number}:{{topicName:'T{number}'}}" for number in range(20_000))
        body = f"{{topicConfigSerializeWrapper:{{topicConfigTable:{{{topics}}}}}}}"
        return self._encode(103, self._broker_fields(), body.encode())

    def _settings(self) -> bytes:
        keys = "".join(f"unknownSetting{number}=1\n" for number in range(self._rng.choice((10, 3_000, 30_000))))
        return self._encode(self._rng.choice((25, 318)), {}, keys.encode())

    def _broker_fields(self) -> dict[str, str]:
        return {"brokerName": "b", "brokerAddr": "127.0.0.1:1", "clusterName": "c", "haServerAddr": "", "brokerId": "0"}

    def _half_frame(self) -> bytes:
        size = self._rng.choice((1 << 16, 1 << 20, 15 << 20))
        return size.to_bytes(4, "big") + bytes(4) + bytes(size // 2)

    def _garbage(self) -> bytes:
        return self._rng.choice(
            (b"\x16\x03\x01", b"\x16", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff")
        ) + self._rng.randbytes(50)

    def _raw(self, form: int, header: bytes) -> bytes:
        return b"".join(((4 + len(header)).to_bytes(4, "big"), bytes([form]), len(header).to_bytes(3, "big"), header))


def attack(addr: str, pid: int, target: str, seconds: float, seed: int) -> Report:
    """Run the peers in a process of their own beside the probe, then measure the memory after they are gone."""
    quiet_ms = asyncio.run(_probe(addr, target, 1.0))  # what is imported at the first request is no growth
    before = _resident_bytes(pid)
    options = ["--target", target, "--seconds", str(seconds), "--seed", str(seed), "--peers", addr]
    peers = subprocess.Popen([sys.executable, __file__, *options], stdout=subprocess.PIPE, text=True)
    times_ms = asyncio.run(_probe(addr, target, seconds))
    sent, _ = peers.communicate(timeout=60)
    growth, deadline_s = _resident_bytes(pid) - before, time.monotonic() + 20
    while growth > GROWTH_BYTES_MAX and time.monotonic() < deadline_s:
        time.sleep(0.5)
        growth = _resident_bytes(pid) - before
    return Report(int(sent), len(times_ms), _p99(quiet_ms), _p99(times_ms), max(times_ms), growth)


def _p99(times_ms: list[float]) -> float:
    return sorted(times_ms)[int(len(times_ms) * 0.99)]


async def run_peers(addr: str, target: str, seconds: float, seed: int) -> int:
    """Attack from several connections; returns how many frames were sent."""
    frames, sent, end_s = Frames(target, seed), [0], time.monotonic() + seconds
    await asyncio.gather(*(_peer(addr, frames, sent, end_s, reads=number % 4 > 0) for number in range(PEERS)))
    return sent[0]


async def _peer(addr: str, frames: Frames, sent: list[int], end_s: float, *, reads: bool) -> None:
    host, _, port = addr.rpartition(":")
    while time.monotonic() < end_s:
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError, TimeoutError):
            for _ in range(20):
                writer.write(frames.next())
                sent[0] += 1
                async with asyncio.timeout(1):
                    await writer.drain()
                if reads:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(0.02):
                            if not await reader.read(1 << 20):
                                break
                if time.monotonic() > end_s:
                    break
        writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(1):
                await writer.wait_closed()


async def _probe(addr: str, target: str, seconds: float) -> list[float]:
    """Times of answers to an ordinary client, in milliseconds."""
    code = 206 if target == "namesrv" else 28
    host, _, port = addr.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    times_ms, end_s = [], time.monotonic() + seconds
    decoder = FrameDecoder()
    while time.monotonic() < end_s:
        start_s = time.monotonic()
        writer.write(encode_command(Command(code=code, opaque=1)))
        async with asyncio.timeout(20):
            while not decoder.feed(await reader.read(1 << 20)):
                pass
        times_ms.append((time.monotonic() - start_s) * 1000)
        await asyncio.sleep(0.005)
    writer.close()
    return times_ms


def _resident_bytes(pid: int) -> int:
    """Without pages of files, such as those of a store."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"process {pid} has ended")


@contextmanager
def running(target: str, folder: Path) -> Iterator[tuple[str, int]]:
    """The address and process id of a server started for this run."""
    ready, log = folder / "ready.json", folder / "server.log"
    options = ["--port", "0", "--ready-file", str(ready), "--log-file", str(log)]
    if target == "namesrv":
        options += [
            "--set",
            f"kvConfigPath={folder / 'kv.json'}",
            "--set",
            f"configStorePath={folder / 'ns.properties'}",
        ]
    else:
        options += ["--data-dir", str(folder / "store")]
    process = subprocess.Popen([sys.executable, "-m", "rocketq", target, *options])
    try:
        deadline_s = time.monotonic() + 30
        while not (ready.exists() and ready.read_text()):
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise RuntimeError(f"the {target} did not start: {log.read_text() if log.exists() else ''}")
            time.sleep(0.05)
        addresses = json.loads(ready.read_text())["addresses"]
        yield str(next(iter(addresses.values()))), process.pid
        if process.poll() is not None:
            raise RuntimeError(f"the {target} ended with status {process.returncode}")
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=sorted(_CODES), default="namesrv")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peers", metavar="ADDR", help="Only attack this server.")
    given = parser.parse_args()
    if given.peers is not None:
        print(asyncio.run(run_peers(given.peers, given.target, given.seconds, given.seed)))
        return 0
    with tempfile.TemporaryDirectory() as folder, running(given.target, Path(folder)) as (addr, pid):
        report = attack(addr, pid, given.target, given.seconds, given.seed)
    print(report)
    for fault in report.faults():
        print(fault)
    return 1 if report.faults() else 0


if __name__ == "__main__":
    sys.exit(main())
