"""Ordinary producers and consumers of the C++ client against any cluster: python clients.py MODE NAMESERVER TOPIC.

It runs under a Python of its own with the package `rocketmq` (librocketmq and a ctypes layer), not under ours. The C
API has no say in where a new group begins: the broker's answer for a group without offsets decides, and a broadcast
consumer begins at the end.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from rocketmq.client import Message, Producer, PushConsumer, RecvMessage, SendResult, SendStatus
from rocketmq.ffi import MessageModel

WAIT_SECONDS_MAX = 60.0
SENT = 60
LATER = 20
QUEUES = 4


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen in time")
        time.sleep(0.02)


def set_keys(client: Any) -> None:
    """Credentials of the environment, if there are any."""
    if "ACCESS_KEY" in os.environ:
        client.set_session_credentials(os.environ["ACCESS_KEY"], os.environ["SECRET_KEY"], "ALIYUN")


class Member:
    """A push consumer and what it was given: bodies, by queue, and how often the order was broken."""

    def __init__(
        self,
        nameserver: str,
        topic: str,
        group: str,
        *,
        tags: str = "*",
        orderly: bool = False,
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> None:
        self.queue_of: dict[str, int] = {}
        self.disorder = 0
        self._next: dict[int, int] = {}
        self._lock = threading.Lock()
        self._consumer = PushConsumer(group, orderly=orderly, message_model=model)
        self._consumer.set_instance_name(f"{group}-{id(self)}")
        self._consumer.set_namesrv_addr(nameserver)
        set_keys(self._consumer)
        self._consumer.subscribe(topic, self._take, tags)
        self._consumer.start()

    def _take(self, message: RecvMessage) -> None:
        with self._lock:
            queue_id, offset = message.queue_id, message.queue_offset
            self.disorder += offset != self._next.get(queue_id, offset)
            self._next[queue_id] = offset + 1
            self.queue_of[message.body.decode()] = queue_id

    def count(self, prefix: str = "") -> int:
        with self._lock:
            return sum(body.startswith(prefix) for body in self.queue_of)

    def leave(self) -> None:
        self._consumer.shutdown()


class Clients:
    def __init__(self, nameserver: str, topic: str) -> None:
        self._nameserver = nameserver
        self._topic = topic
        self._producer = Producer("cpp-producer", timeout=10_000)
        self._producer.set_namesrv_addr(nameserver)
        set_keys(self._producer)
        self._producer.start()
        self._rounds = 0

    def message(self, body: str, tag: str = "TagA") -> Message:
        made = Message(self._topic)
        made.set_keys(f"key-{body}")
        made.set_tags(tag)
        made.set_body(body)
        return made

    def member(self, group: str, **options: object) -> Member:
        return Member(self._nameserver, self._topic, group, **options)  # type: ignore[arg-type]

    def produce(self) -> None:
        """20 at once, 10 asynchronous, 5 one-way, 10 and 5 in order, 10 in a batch; ten have TagB. The topic is new."""
        for at in range(20):
            require(self._producer.send_sync(self.message(f"sync-{at}", "TagB" if at % 2 else "TagA")))
        answered: list[SendResult] = []
        problems: list[Exception] = []
        waiting = [self.message(f"async-{at}") for at in range(10)]  # must live until they are answered
        for one in waiting:
            self._producer.send_async(one, answered.append, problems.append)
        until("asynchronous sends", lambda: len(answered) + len(problems) == 10)
        assert not problems, problems
        for at in range(5):
            self._producer.send_oneway(self.message(f"oneway-{at}"))
        for at in range(10):
            require(self._producer.send_orderly(self.message(f"ordered-{at}"), at % 2))
        for at in range(5):
            self._producer.send_oneway_orderly(self.message(f"orderedoneway-{at}"), 3)
        require(self._producer.send_batch([self.message(f"batch-{at}") for at in range(10)]))
        print("sent", SENT)

    def consume(self) -> None:
        everything = self.member("cpp-all")
        tagged = self.member("cpp-tagged", tags="TagB || TagC")
        ordered = self.member("cpp-ordered", orderly=True)
        until("consuming", lambda: everything.count() >= SENT and ordered.count() >= SENT and tagged.count() >= 10)
        print("all", everything.count())
        print("tagged", tagged.count())
        print("ordered", ordered.count(), len({ordered.queue_of[f"ordered-{at}"] for at in range(0, 10, 2)}))
        print("disorder", ordered.disorder)
        copies = [self.member("cpp-broadcast", model=MessageModel.BROADCASTING) for _ in range(2)]
        until("broadcasts", lambda: self._round(*copies) == [QUEUES, QUEUES])
        print("broadcast", *self._round(*copies))
        for one in (everything, tagged, ordered, *copies):
            one.leave()

    def rebalance(self) -> None:
        """Two members share the queues; when one leaves, the other takes all of them and what comes after."""
        one, two = (self.member("cpp-shared") for _ in range(2))
        until("sharing", lambda: self._round(one, two) == [2, 2])
        print("shared", *self._round(one, two))
        left = time.monotonic()
        two.leave()
        until("taking over", lambda: self._round(one) == [QUEUES])
        print("quick", time.monotonic() - left < 10)
        for at in range(LATER):
            require(self._producer.send_sync(self.message(f"later-{at}")))
        until("later messages", lambda: one.count("later-") == LATER)
        print("later", one.count("later-"))
        one.leave()

    def _round(self, *members: Member) -> list[int]:
        """One message to each queue; how many of them each member got, once they got all or a second is over."""
        self._rounds += 1
        prefix = f"round-{self._rounds}-"
        for queue in range(QUEUES):
            require(self._producer.send_orderly(self.message(f"{prefix}{queue}"), queue))
        deadline = time.monotonic() + 1
        while time.monotonic() < deadline and sum(one.count(prefix) for one in members) < QUEUES:
            time.sleep(0.02)
        time.sleep(0.2)  # what comes twice comes now
        return [one.count(prefix) for one in members]

    def resume(self) -> None:
        """A group that was here before gets only what is new."""
        for at in range(10):
            require(self._producer.send_sync(self.message(f"new-{at}")))
        member = self.member("cpp-all")
        until("new messages", lambda: member.count("new-") == 10)
        print("again", member.count("sync-") + member.count("async-") + member.count("batch-"))
        member.leave()


def require(result: SendResult) -> None:
    assert result.status == SendStatus.OK, result


def main() -> None:
    mode, nameserver, topic = sys.argv[1:]
    try:
        getattr(Clients(nameserver, topic), mode)()
    except BaseException:
        traceback.print_exc()
        status = 1
    else:
        status = 0
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # the library's threads need not be waited for


main()
