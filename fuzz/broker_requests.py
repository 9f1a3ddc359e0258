"""Attack and fuzz a running broker: `python fuzz/broker_requests.py --seconds 60 [--seed 1]`.

Starts `rocketq up`, sends known attacks and then damaged requests of every code, in both forms of headers, while a
probe client measures a send and a query. Invariants: the process lives, its memory returns to within 64 MiB, and the
probe's 99th percentile stays below 200 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.flags import ExpressionType
from rocketq.protocol.frame import FrameDecoder, encode_command
from rocketq.protocol.requests import HEADERS

MEMORY_MIB_MAX = 64
PROBE_P99_MS_MAX = 200
VALUES = (
    ["", "0", "-1", "1", "true", "x" * 300, "T", "%RETRY%g", "a b", "\0", "*", "||", "SQL92", "../..", "y" * 60_000]
    + [str(number) for power in (31, 63, 70) for number in (1 << power, -(1 << power), (1 << power) - 1)]
    + ["\U0001f600", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"]
)
BODIES = [b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"a":', b"\xff" * 2_000, b"=" * 60_000, b"{" * 60_000]
NEVER = {RequestCode.UPDATE_BROKER_CONFIG}
"""Its random values could change limits that this script relies on; it has attacks of its own."""


class Client:
    """A connection that sends frames and counts answers by code."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self.answers: Counter[int] = Counter()
        self.remarks: dict[int, str] = {}
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def connect(cls, port: int) -> Client:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, command: Command) -> None:
        self._writer.write(encode_command(command))
        await self._writer.drain()

    async def ask(self, command: Command, timeout_s: float = 20) -> str:
        """Code and remark of the answer, or how the connection ended."""
        before = self.answers.total()
        try:
            await self.send(command)
            async with asyncio.timeout(timeout_s):
                while self.answers.total() == before:
                    if self._reading.done():
                        return "connection closed"
                    await asyncio.sleep(0.002)
        except (ConnectionError, TimeoutError) as error:
            return type(error).__name__
        code = self.last
        return f"{code} {self.remarks.get(code, '')[:90]}"

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()
        await self._reading

    async def _read(self) -> None:
        decoder = FrameDecoder()
        with contextlib.suppress(ConnectionError):
            while data := await self._reader.read(1 << 20):
                for command in decoder.feed(data):
                    if command.is_response:
                        self.last = command.code
                        self.remarks[command.code] = command.remark or ""
                        self.answers[command.code] += 1


def request(code: int, form: HeaderForm, ext_fields: dict[str, Any] | None = None, body: bytes = b"") -> Command:
    texts = {name: str(value) for name, value in (ext_fields or {}).items()}
    return Command(code=code, opaque=1, version=479, ext_fields=texts, body=body, form=form)


def sql(length: int, number: int) -> str:
    text = f"n = {number}"
    while len(text) < length:
        text += f" OR a{len(text) % 32} = '{number}'"
    return text


def attacks(form: HeaderForm) -> list[tuple[str, list[Command]]]:
    """Requests that once stopped or starved a broker."""
    pull = {
        "consumerGroup": "g", "topic": "T", "queueId": 0, "queueOffset": 1 << 40, "maxMsgNums": 1, "sysFlag": 6,
        "commitOffset": 0, "suspendTimeoutMillis": 3_000, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    conditions = tuple(
        Subscription(topic=f"T{n}", expression=sql(5_000, n), expression_type=ExpressionType.SQL92) for n in range(20)
    )
    tags = tuple(f"tag{n}" for n in range(100_000))

    def beat(*subscriptions: Subscription) -> bytes:
        return Heartbeat(client_id="c", consumers=(ConsumerData(group="g", subscriptions=subscriptions),)).encode()

    def config(text: str) -> Command:
        return request(RequestCode.UPDATE_BROKER_CONFIG, form, body=text.encode())

    def batch_element() -> bytes:
        properties = b"DELAY\x010\x02"
        head = struct.pack(">iiiii", 22 + 1 + len(properties), 0, 0, 0, 1)
        return head + b"x" + struct.pack(">h", len(properties)) + properties

    send = {
        "a": "p", "b": "T", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0, "k": "false",
        "m": "true",
    }  # fmt: skip
    return [
        ("a first send", [request(RequestCode.SEND_MESSAGE_V2, form, send | {"m": "false"}, b"x")]),
        ("unknown settings, 731 KB", [config("".join(f"unknown{n}=1\n" for n in range(45_000)))]),
        ("unknown settings, 60 KB", [config("".join(f"unknown{n}=1\n" for n in range(4_000)))]),
        ("no room for requests", [config("sendThreadPoolQueueCapacity=0")]),
        ("no held pulls", [config("pullThreadPoolQueueCapacity=0")]),
        ("quota that blocks for years", [config("quotas=topic/*: 0.0000001 msg/s")]),
        ("heartbeat of SQL92, 100 KB", [request(RequestCode.HEART_BEAT, form, body=beat(*conditions))]),
        ("heartbeat of 100,000 tags", [
            request(RequestCode.HEART_BEAT, form, body=beat(Subscription(topic="T", expression="a", tags=tags)))
        ]),
        ("heartbeat of 15 MB", [
            request(RequestCode.HEART_BEAT, form, body=b'{"clientID":"' + b"c" * 15_000_000 + b'"}')
        ]),
        ("offsets of unknown topics", [
            request(RequestCode.UPDATE_CONSUMER_OFFSET, form,
                    {"consumerGroup": "g", "topic": f"T{n}" + "x" * 1_000, "queueId": n, "commitOffset": 1})
            for n in range(2_000)
        ]),
        ("offsets of queue 10^9", [
            request(RequestCode.UPDATE_CONSUMER_OFFSET, form,
                    {"consumerGroup": "g", "topic": "T", "queueId": 10**9, "commitOffset": 1})
        ]),
        ("held pulls", [
            request(RequestCode.PULL_MESSAGE, form, pull | {"queueId": 1, "queueOffset": 0}) for _ in range(12_000)
        ]),
        ("batch of 20,000 that names DELAY", [
            request(RequestCode.SEND_BATCH_MESSAGE, form, send, batch_element() * 20_000)
        ]),
        ("long SQL92 of a pull", [
            request(RequestCode.PULL_MESSAGE, form, pull | {"expressionType": "SQL92", "subscription": sql(16_000, 1)})
        ]),
        ("log offsets", [
            request(RequestCode.VIEW_MESSAGE_BY_ID, form, {"offset": offset}) for offset in (-1, 1, 77, 1 << 62)
        ]),
        ("end of transaction", [
            request(RequestCode.END_TRANSACTION, form, {"producerGroup": "p", "tranStateTableOffset": 0,
                                                        "commitLogOffset": 100, "commitOrRollback": 8})
        ]),
        ("100,000 header fields", [request(RequestCode.GET_MAX_OFFSET, form, {f"f{n}": n for n in range(100_000)})]),
    ]  # fmt: skip


def made_up(chance: random.Random) -> Command:
    code, header = chance.choice([item for item in HEADERS.items() if item[0] not in NEVER])
    names = [item.metadata["names"][0] for item in fields(cast(Any, header))]
    given = {name: chance.choice(VALUES) for name in names if chance.random() < 0.9}
    form = chance.choice((HeaderForm.JSON, HeaderForm.BINARY))
    return request(int(code), form, given, chance.choice(BODIES) if chance.random() < 0.5 else b"")


async def probe(port: int, times_ms: list[float], at_s: list[float], stop: asyncio.Event, epoch: float) -> None:
    client = await Client.connect(port)
    fields = {
        "a": "p", "b": "Probe", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0, "i": "", "j": 0, "k": "false",
        "m": "false",
    }  # fmt: skip
    while not stop.is_set():
        for command in (
            request(RequestCode.SEND_MESSAGE_V2, HeaderForm.JSON, fields, b"probe"),
            request(RequestCode.GET_MAX_OFFSET, HeaderForm.JSON, {"topic": "Probe", "queueId": 0}),
        ):
            started = time.perf_counter()
            answer = await client.ask(command)
            times_ms.append((time.perf_counter() - started) * 1_000)
            at_s.append(started - epoch)
            if not answer.startswith("0"):
                print("  probe:", answer)
        await asyncio.sleep(0.01)
    await client.close()


async def fuzz(port: int, seconds: float, chance: random.Random, answers: Counter[int]) -> int:
    end, count = time.monotonic() + seconds, 0
    client = await Client.connect(port)
    while time.monotonic() < end:
        with contextlib.suppress(ConnectionError):
            for _ in range(20):
                await client.send(made_up(chance))
                count += 1
            await asyncio.sleep(0.02)
        if chance.random() < 0.1 or client._reading.done():
            answers += client.answers
            await client.close()
            client = await Client.connect(port)
    answers += client.answers
    await client.close()
    return count


def memory_mib(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.split("VmRSS:")[1].split()[0]) / 1_024


async def attack(port: int, epoch: float) -> None:
    for form in (HeaderForm.JSON, HeaderForm.BINARY):
        for name, commands in attacks(form):
            client = await Client.connect(port)
            started, began_s = time.monotonic(), time.perf_counter() - epoch
            with contextlib.suppress(ConnectionError):
                for command in commands[:-1]:
                    await client.send(command)
            answer = await client.ask(commands[-1])
            print(f"  {began_s:5.1f} s {form.name:6} {name:36} {time.monotonic() - started:6.2f} s  {answer}")
            await client.close()


async def run(port: int, pid: int, seconds: float, seed: int) -> list[str]:
    times_ms: list[float] = []
    at_s: list[float] = []
    epoch = time.perf_counter()
    stop, answers = asyncio.Event(), Counter[int]()
    probing = asyncio.create_task(probe(port, times_ms, at_s, stop, epoch))
    await asyncio.sleep(2)
    before = memory_mib(pid)
    await attack(port, epoch)
    sent = await fuzz(port, seconds, random.Random(seed), answers)
    deadline = time.monotonic() + 60
    while memory_mib(pid) - before > MEMORY_MIB_MAX and time.monotonic() < deadline:
        await asyncio.sleep(1)
    stop.set()
    await probing
    ordered = sorted(times_ms)
    p99, worst = ordered[int(len(ordered) * 0.99)], ordered[-1]
    grown = memory_mib(pid) - before
    print(f"{sent} fuzzed requests, answers {dict(answers.most_common(6))}")
    print(f"memory {before:.0f} MiB {grown:+.0f} MiB; probe p50 {ordered[len(ordered) // 2]:.1f} ms, p99 {p99:.1f} ms, "
          f"max {worst:.0f} ms of {len(times_ms)}")  # fmt: skip
    print(
        "slowest:",
        ", ".join(
            f"{ms:.0f} ms at {at:.1f} s" for ms, at in sorted(zip(times_ms, at_s, strict=True), reverse=True)[:5]
        ),
    )
    faults = []
    if grown > MEMORY_MIB_MAX:
        faults.append(f"memory grew by {grown:.0f} MiB")
    if p99 > PROBE_P99_MS_MAX:
        faults.append(f"the probe's p99 is {p99:.0f} ms")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [
            str(Path(sys.executable).with_name("rocketq")), "up", "--data-dir", f"{folder}/data", "--namesrv-port", "0",
            "--broker-port", "0", "--no-console", "--ready-file", str(ready), "--log-file", f"{folder}/log",
            "--set", "enablePropertyFilter=true",
        ]  # fmt: skip
        with subprocess.Popen(command) as process:
            try:
                while not ready.exists():
                    assert process.poll() is None, "the broker did not start"
                    time.sleep(0.1)
                addresses = json.loads(ready.read_text())["addresses"]
                port = int(next(addr for name, addr in addresses.items() if name != "namesrv").rpartition(":")[2])
                faults = asyncio.run(run(port, process.pid, asked.seconds, asked.seed))
                if process.poll() is not None:
                    faults.append(f"the process ended with {process.returncode}")
            finally:
                process.terminate()
        unexpected = [line for line in Path(f"{folder}/log").read_text().splitlines() if "Traceback" in line]
    if unexpected:
        faults.append(f"{len(unexpected)} tracebacks in the log")
    print("failed: " + "; ".join(faults) if faults else "passed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
