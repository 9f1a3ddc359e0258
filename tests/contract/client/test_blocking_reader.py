"""The blocking reader against a live broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from struct import iter_unpack

import pytest

from rocketq.client import Admin, Message, Producer
from rocketq.client.blocking import BlockingClient, QueueReader, ReadOptions
from rocketq.client.blocking.client import ReadInto
from rocketq.client.blocking.queue_reader import LocalReadError, RangeGoneError, RecordLocations
from rocketq.errors import UnreachableError
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.messages import decode_records
from rocketq.runtime.machine import boot_id, file_id
from rocketq.testing import EmbeddedCluster

COUNT = 3_000


@pytest.fixture(scope="module")
def queue(rocketq_cluster: EmbeddedCluster) -> MessageQueue:
    """A queue with COUNT messages."""
    name_servers = rocketq_cluster.name_server_addr
    with Admin(name_servers) as admin:
        admin.topics.create("Blocking", queues=1)
    with Producer("blocking-producer", name_servers=name_servers) as producer:
        messages = [Message(topic="Blocking", body=b"%d" % n * 20, tag="AB"[n % 2]) for n in range(COUNT)]
        return producer.send_batch(messages)[0].queue


def read(
    cluster: EmbeddedCluster, queue: MessageQueue, low: int, high: int, expression: str = "*", **options: int
) -> list[int]:
    with BlockingClient(cluster.name_server_addr) as client:
        chosen = ReadOptions(group="blocking-readers", expression=expression, **options)  # type: ignore[arg-type]
        bodies = list(QueueReader(client, queue, low, high, chosen))
    return [record.queue_offset for body in bodies for record in decode_records(body)]


@pytest.mark.parametrize("depth", [1, 4])
def test_a_stretch_is_read_whole_and_in_order(
    rocketq_cluster: EmbeddedCluster, queue: MessageQueue, depth: int
) -> None:
    """Goal: many small answers in flight at once, each message once, in queue order."""
    found = read(rocketq_cluster, queue, 10, COUNT - 5, depth=depth, bytes_max=20_000)
    assert found == list(range(10, COUNT - 5))


class Placed:
    """A sink that takes records out of the log's files by itself, and says which came over the line."""

    def __init__(self) -> None:
        self.found: list[bytes] = []
        self.sent: list[bytes] = []

    def take(self, size: int, into: ReadInto, high: int) -> None:
        body = bytearray(size)
        into(memoryview(body))
        self.sent.append(bytes(body))

    def append_local(self, placed: RecordLocations) -> None:
        assert placed.folder_id == file_id(placed.folder)
        for log_offset, _, size in iter_unpack(">qqi", placed.places):
            base = log_offset - log_offset % placed.file_bytes
            with (Path(placed.folder) / f"{base:020d}").open("rb") as file:
                file.seek(log_offset - base)
                self.found.append(file.read(size))


def placed(
    cluster: EmbeddedCluster, queue: MessageQueue, expression: str = "*", sink: Placed | None = None, **given: int
) -> Placed:
    sink, limits = sink or Placed(), {"bytes_max": 20_000, **given}
    options = ReadOptions(group="placed", expression=expression, in_place=True, **limits)  # type: ignore[arg-type]
    with BlockingClient(cluster.name_server_addr) as client:
        for _ in QueueReader(client, queue, 0, COUNT, options).feed(sink):
            pass
    return sink


@pytest.mark.skipif(not boot_id(), reason="this system does not say which kernel runs")
@pytest.mark.parametrize(("expression", "step"), [("*", 1), ("A", 2)])
def test_a_reader_on_the_brokers_machine_is_told_where_records_lie(
    rocketq_cluster: EmbeddedCluster, queue: MessageQueue, expression: str, step: int
) -> None:
    """Goal: the files have at these places what the line would have brought, whatever the broker filtered."""
    sink = placed(rocketq_cluster, queue, expression)
    records = [record for each in sink.found for record in decode_records(each)]
    assert not sink.sent
    assert [record.queue_offset for record in records if record.queue_offset < COUNT] == list(range(0, COUNT, step))
    assert all(record.body == b"%d" % record.queue_offset * 20 for record in records if record.queue_offset < COUNT)


class LosingSight(Placed):
    """Sees the files of the first few answers only."""

    def __init__(self, answers: int) -> None:
        super().__init__()
        self._left = answers

    def append_local(self, placed: RecordLocations) -> None:
        self._left -= 1
        if self._left < 0:
            raise LocalReadError("gone")
        super().append_local(placed)


@pytest.mark.skipif(not boot_id(), reason="this system does not say which kernel runs")
@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("count_max", [50, 700])
@pytest.mark.parametrize(("expression", "step"), [("*", 1), ("A", 2)])
def test_a_reader_that_loses_sight_of_the_files_goes_on_over_the_line(
    rocketq_cluster: EmbeddedCluster, queue: MessageQueue, expression: str, step: int, count_max: int, depth: int
) -> None:
    """Goal: each message once and in order, also where filtered answers pass what was asked for."""
    sink = LosingSight(1)
    placed(rocketq_cluster, queue, expression, sink, count_max=count_max, depth=depth, bytes_max=1 << 20)
    offsets = [record.queue_offset for each in (*sink.found, *sink.sent) for record in decode_records(each)]
    assert sink.found
    assert sink.sent
    assert [each for each in offsets if each < COUNT] == list(range(0, COUNT, step))


def test_a_reader_that_sees_other_files_gets_records(
    rocketq_cluster: EmbeddedCluster, queue: MessageQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a broker that is reached under this machine's address but runs elsewhere."""
    monkeypatch.setattr("rocketq.client.blocking.queue_reader.boot_id", lambda: "of another machine")
    sink = placed(rocketq_cluster, queue)
    assert not sink.found
    assert sum(len(decode_records(each)) for each in sink.sent) == COUNT


def test_operators_may_keep_their_files_to_themselves(make_rocketq_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_rocketq_cluster(settings={"pullInPlaceEnable": "false"})
    with Producer("p", name_servers=cluster.name_server_addr) as producer:
        messages = [Message(topic="Kept", body=b"%d" % number) for number in range(COUNT)]
        sink = placed(cluster, producer.send_batch(messages)[0].queue)
    assert not sink.found
    assert sum(len(decode_records(each)) for each in sink.sent) == COUNT


def test_a_filter_is_the_brokers_work(rocketq_cluster: EmbeddedCluster, queue: MessageQueue) -> None:
    """Goal: only what matches travels, gaps are no loss."""
    found = read(rocketq_cluster, queue, 0, COUNT, "B")
    assert [each for each in found if each < COUNT] == list(range(1, COUNT, 2))


def test_what_the_broker_does_not_hold_is_an_error_that_says_what(
    rocketq_cluster: EmbeddedCluster, queue: MessageQueue
) -> None:
    """Goal: a reader that is asked for more than there is does not end quietly with less."""
    with pytest.raises(RangeGoneError, match=f"offsets {COUNT} to") as caught:
        read(rocketq_cluster, queue, COUNT - 10, COUNT + 10)
    assert caught.value.high == COUNT + 10


def test_a_broker_that_comes_back_is_read_on(make_rocketq_cluster: object) -> None:
    """Goal: a broker restart in the middle costs a pause, no message."""
    cluster: EmbeddedCluster = make_rocketq_cluster()  # type: ignore[operator]
    with Producer("p", name_servers=cluster.name_server_addr) as producer:
        queue = producer.send(Message(topic="Restart", body=b"x" * 1000)).queue
        for _ in range(4):
            producer.send_batch([Message(topic="Restart", body=b"x" * 1000) for _ in range(250)], queue=queue)
    with BlockingClient(cluster.name_server_addr) as client:
        options = ReadOptions(group="g", bytes_max=20_000, depth=2, retry_ms=100, retries=50)
        reader = iter(QueueReader(client, queue, 0, 1000, options))
        bodies = [next(reader)]
        cluster.restart_broker()
        bodies += reader
    assert [record.queue_offset for body in bodies for record in decode_records(body)] == list(range(1000))


def test_no_name_server_is_told_with_its_address() -> None:
    with BlockingClient("127.0.0.1:1") as client, pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1"):
        client.route("T")


def test_connections_that_were_closed_meanwhile_are_made_anew(
    make_rocketq_cluster: Callable[..., EmbeddedCluster],
) -> None:
    """Goal: a worker whose NameServer was started again, or closed an idle connection, asks as for the first time."""
    cluster = make_rocketq_cluster()
    with Admin(cluster.name_server_addr) as admin:
        admin.topics.create("Kept", queues=1)
    with BlockingClient(cluster.name_server_addr) as client:
        assert client.route("Kept").brokers
        cluster.stop_name_server()
        cluster.start_name_server()
        cluster.restart_broker()
        assert client.call_name_server(code=RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER).body


def test_a_connection_that_nobody_used_for_long_is_not_used_again(
    rocketq_cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: servers close idle connections; a request that meets one would be lost on its way."""
    with BlockingClient(rocketq_cluster.name_server_addr) as client:
        first = client.link(rocketq_cluster.broker_addr)
        assert client.link(rocketq_cluster.broker_addr) is first
        monkeypatch.setattr("rocketq.client.blocking.client.IDLE_S_MAX", -1.0)
        assert client.link(rocketq_cluster.broker_addr) is not first
