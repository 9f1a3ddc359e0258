"""The C++ binding under the same loads; runs under a Python of its own, with the package `rocketmq`.

python cpp_load.py send NAMESERVER TOPIC THREADS SECONDS
python cpp_load.py consume NAMESERVER TOPIC COUNT SECONDS
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage


def send(name_server: str, topic: str, threads: int, seconds: float) -> None:
    producer = Producer("cpp-load", timeout=10_000)
    producer.set_namesrv_addr(name_server)
    producer.start()
    counts = [0] * threads
    warm = time.monotonic() + 1
    until = warm + seconds

    def work(number: int) -> None:
        while (now := time.monotonic()) < until:
            message = Message(topic)
            message.set_keys("key")
            message.set_tags("TagA")
            message.set_body("x" * 128)
            producer.send_sync(message)
            counts[number] += now >= warm

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    report(sum(counts), time.monotonic() - warm)


def consume(name_server: str, topic: str, count: int, seconds: float) -> None:
    """As many as it gets in that time, at most `count`."""
    seen, first, ended, lock = 0, 0.0, threading.Event(), threading.Lock()

    def take(message: RecvMessage) -> None:
        nonlocal seen, first
        with lock:
            first = first or time.monotonic()
            seen += 1
            if seen >= count:
                ended.set()

    consumer = PushConsumer(f"cpp-load-{time.time_ns()}")
    consumer.set_namesrv_addr(name_server)
    consumer.subscribe(topic, take)
    consumer.start()
    ended.wait(seconds)
    with lock:
        report(seen, time.monotonic() - first if first else seconds)


def report(count: int, seconds: float) -> None:
    print(json.dumps({"count": count, "seconds": seconds}), flush=True)
    os._exit(0)  # its own shutdown takes seconds


if __name__ == "__main__":
    mode, name_server, topic, number, seconds = sys.argv[1:6]
    (send if mode == "send" else consume)(name_server, topic, int(number), float(seconds))
