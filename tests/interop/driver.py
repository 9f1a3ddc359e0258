"""The Python side of the Java driver: a real client producing into, and reading back from, a running Apache broker."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from . import processes
from .apache import ApacheBroker
from .messages import Acknowledged, Place, Queue, Stored, View, by_place
from .stream import Stream

RUN_SECONDS_MAX = 100.0
HEAP_MB = 256


def produce(broker: ApacheBroker, *, prefix: str, seed: int) -> list[Acknowledged]:
    """Send a few hundred messages of every kind to the topics of that prefix; what was acknowledged."""
    lines = _run(broker, "produce", [f"prefix={prefix}", f"seed={seed}"], "")
    return [Acknowledged.from_line(line) for line in lines]


@contextmanager
def streaming(broker: ApacheBroker, *, prefix: str, threads: int = 4) -> Iterator[Stream]:
    """A client that goes on sending from several threads while the body runs."""
    error_log = broker.log.with_name("stream.log")
    with broker.log.with_name("stream.jsonl").open("w+b") as out, error_log.open("wb") as errors:
        command = _command(broker, "stream", [f"prefix={prefix}", f"threads={threads}"])
        process = processes.start(command, log=errors, stdout=out)
        try:
            yield Stream(process, out.name)
        finally:
            process.kill()
            process.wait()


def verify(broker: ApacheBroker, expected: Iterable[Acknowledged], *, queues: Iterable[Queue] = ()) -> View:
    """Read back, through the broker, the queues of these messages and the queues named, and look up each id and key."""
    manifest: list[dict[str, Any]] = [message.to_line() for message in expected]
    manifest += [{"topic": topic, "queueId": queue_id} for topic, queue_id in queues]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in manifest)
    bounds: dict[Queue, tuple[int, int]] = {}
    pulled: list[Stored] = []
    by_id: dict[str, Stored] = {}
    by_key: dict[tuple[str, str], frozenset[str]] = {}
    problems: list[str] = []
    for line in _run(broker, "verify", [], text):
        if "problem" in line:
            problems.append(json.dumps(line, ensure_ascii=False))
            continue
        match line["seen"]:
            case "queue":
                bounds[line["topic"], line["queueId"]] = line["minOffset"], line["maxOffset"]
            case "pull":
                pulled.append(Stored.from_line(line))
            case "id":
                by_id[line["offsetMsgId"]] = Stored.from_line(line)
            case "key" | "uniqKey":
                by_key[line["topic"], line["key"]] = frozenset(line["offsetMsgIds"])
    places: dict[Place, Stored] = by_place(pulled)
    return View(bounds=bounds, pulled=places, by_id=by_id, by_key=by_key, problems=tuple(problems))


def _command(broker: ApacheBroker, mode: str, options: list[str]) -> list[str]:
    home = broker.log.parent / "client-home"
    home.mkdir(exist_ok=True)
    java = broker.release.java(heap_mb=HEAP_MB, home=home)
    addresses = [f"nameserver={broker.nameserver.address}", f"broker={broker.address}"]
    return [*java, "StoreDriver", mode, *addresses, *options]


def _run(broker: ApacheBroker, mode: str, options: list[str], text: str) -> list[dict[str, Any]]:
    ran = subprocess.run(
        _command(broker, mode, options), input=text.encode(), capture_output=True, check=False, timeout=RUN_SECONDS_MAX
    )
    if ran.returncode != 0:
        raise RuntimeError(f"{mode} against {broker} failed:\n{ran.stderr.decode(errors='replace')[-4000:]}")
    return [json.loads(line) for line in ran.stdout.splitlines()]
