"""Synchronous clients share one loop and one session per process, NameServer list and settings."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from rocketq.client import (
    Admin,
    ClientError,
    GroupTakenError,
    Message,
    Producer,
    ProducerConfig,
    PullConsumer,
    SendFailedError,
    SessionConfig,
    SharedSession,
)
from rocketq.testing.embedded import EmbeddedCluster

from .kit import closed_port


@pytest.fixture(scope="module")
def alone() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(brokers=1) as running:
        yield running


def loops() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "rocketq-client"]


def connections(cluster: EmbeddedCluster) -> int:
    """Open connections to the NameServer and the broker, as the kernel counts them from this process's side."""
    ports = {addr.rpartition(":")[2] for addr in (cluster.name_server_addr, cluster.broker_addr)}
    found = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        found += words[3] == "01" and str(int(words[2].rpartition(":")[2], 16)) in ports
    return found


@pytest.mark.parametrize("same_group", [True, False])
def test_ten_producers_have_one_loop_and_two_connections(alone: EmbeddedCluster, topic: str, same_group: bool) -> None:
    before = connections(alone)
    with ExitStack() as stack:
        producers = [
            stack.enter_context(Producer(f"G{0 if same_group else at}-{topic}", name_servers=alone.name_server_addr))
            for at in range(10)
        ]
        for producer in producers:
            assert producer.send(Message(topic=topic, body=b"x")).status == "SEND_OK"
        assert len(loops()) == 1
        direct = sum(map(len, producers[0]._sockets._idle.values()))  # type: ignore[union-attr]
        assert connections(alone) - before - direct == 2
        assert direct <= 1  # the socket of this thread, shared by all producers
        assert len({producer.health().client_id for producer in producers}) == 1
    assert loops() == []
    assert connections(alone) == before


def test_two_consumers_of_a_group_are_two_clients(alone: EmbeddedCluster, topic: str, group: str) -> None:
    """Goal: members of a group share its queues also when they live in one process."""
    addr = alone.name_server_addr
    with Admin(addr) as admin:
        admin.topics.create(topic, queues=4)
    with PullConsumer(group, name_servers=addr) as first, PullConsumer(group, name_servers=addr) as second:
        first.subscribe(topic)
        second.subscribe(topic)
        for _ in range(200):
            if len(first.assignment()) == len(second.assignment()) == 2:
                break
            first.poll(timeout_ms=50)
        assert set(first.assignment()).isdisjoint(second.assignment())
        assert len(loops()) == 1


def test_settings_that_differ_are_other_sessions(alone: EmbeddedCluster, topic: str) -> None:
    addr, config = alone.name_server_addr, SessionConfig(namespace="other")
    with Producer("a", name_servers=addr) as plain, Producer("a", name_servers=addr, session_config=config) as other:
        assert plain.health().client_id != other.health().client_id
        assert len(loops()) == 1


def test_a_session_may_be_given(alone: EmbeddedCluster, topic: str, group: str) -> None:
    with SharedSession(alone.name_server_addr) as session:
        with Producer("p", session=session) as producer, PullConsumer(group, session=session) as consumer:
            producer.send(Message(topic=topic, body=b"x"))
            with pytest.raises(GroupTakenError):
                PullConsumer(group, session=session).start()
            assert producer.health().client_id == session.client_id
            consumer.subscribe(topic)
        assert session.health().members == ()
        with Admin(session=session) as admin:
            assert topic in admin.topics.list()
    assert loops() == []
    with pytest.raises(ClientError, match="not both"):
        Producer("p", name_servers="127.0.0.1:1", session=session)
    with pytest.raises(ClientError, match="must be a SharedSession, got str"):
        Producer("p", session="127.0.0.1:1")  # type: ignore[arg-type]


def test_a_forked_child_has_its_own_session(alone: EmbeddedCluster, topic: str) -> None:
    """Goal: a producer that is made and used before a fork works in both processes, with two client ids."""
    with Producer("p", name_servers=alone.name_server_addr) as producer:
        producer.send(Message(topic=topic, body=b"parent"))
        ours = producer.health().client_id
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                sent = producer.send(Message(topic=topic, body=b"child"))
                os.write(writer, f"{sent.status} {producer.health().client_id}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        status, _, theirs = os.read(reader, 1_000).decode().partition(" ")
        os.waitpid(child, 0)
        assert status == "SEND_OK"
        assert theirs != ours
        assert producer.send(Message(topic=topic, body=b"parent")).status == "SEND_OK"


def test_tracebacks_of_synchronous_calls_are_short(alone: EmbeddedCluster, topic: str) -> None:
    """Goal: the frames of the loop's thread say nothing to the caller."""
    config = ProducerConfig(send_timeout_ms=200)
    with Admin(alone.name_server_addr) as admin:
        admin.topics.create(topic)
    with Producer("short", name_servers=alone.name_server_addr, config=config) as producer:
        queue = producer.queues(topic)[0]
        alone.stop_broker()
        try:
            with pytest.raises((SendFailedError, Exception)) as caught:
                producer.send(Message(topic=topic, body=b"x"), queue=queue)
        finally:
            alone.start_broker()
    text = "".join(traceback.format_exception(caught.value))
    assert text.count('File "') <= 5, text
    with pytest.raises(Exception, match=r"127\.0\.0\.1") as caught_too, Admin(closed_port()) as admin:
        admin.topics.list()
    text = "".join(traceback.format_exception(caught_too.value))
    assert text.count('File "') <= 6, text
