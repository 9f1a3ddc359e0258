"""The work of one task against live brokers, without Spark: what is acknowledged is there, and how."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from rocketq.client import Admin
from rocketq.client.blocking import BlockingClient
from rocketq.client.blocking.sender import HalfHandle, TransactionEnds
from rocketq.protocol.acl import Credentials
from rocketq.protocol.failures import TopicNotFoundError
from rocketq.protocol.flags import TransactionState
from rocketq.spark.errors import SparkError
from rocketq.spark.exactly_once import HalfWriter
from rocketq.spark.options import Connection
from rocketq.spark.sink_options import BadRecords, SinkOptions
from rocketq.spark.writer import TaskId, TaskWriter, Written
from rocketq.testing import EmbeddedCluster
from tests.spark.filling import Filler
from tests.spark.sinking import bodies, properties, stored

_numbers = itertools.count(1)


@pytest.fixture
def client(cluster: EmbeddedCluster) -> Iterator[BlockingClient]:
    with BlockingClient(cluster.name_server_addr) as made:
        yield made


@pytest.fixture
def topic(filler: Filler) -> str:
    return filler.topic(name=f"Sink{next(_numbers)}", queues=2)


def options(client_of: EmbeddedCluster, topic: str | None, **more: object) -> SinkOptions:
    made = SinkOptions(connection=Connection(name_servers=client_of.name_server_addr), topic=topic)
    return replace(made, **more)  # type: ignore[arg-type]


def write(
    client: BlockingClient, chosen: SinkOptions, *batches: dict[str, object], task: TaskId | None = None
) -> Written:
    rows = [batch if isinstance(batch, pa.RecordBatch) else pa.RecordBatch.from_pydict(batch) for batch in batches]
    return TaskWriter(client, chosen, task or TaskId(3)).write(rows)


def test_every_row_is_there_once_over_all_queues(cluster: EmbeddedCluster, client: BlockingClient, topic: str) -> None:
    """Goal: several batches, many requests, no row lost or twice, every queue used, ids unique."""
    batches = [{"body": [b"%d-%d" % (n, row) for row in range(2_000)]} for n in range(3)]
    written = write(client, options(cluster, topic, batch_bytes=20_000), *batches)
    assert written == Written(rows=6_000)
    found = stored(cluster.name_server_addr, topic)
    assert Counter(record.body for record in found) == Counter(body for batch in batches for body in batch["body"])
    assert len({properties(record)["UNIQ_KEY"] for record in found}) == 6_000
    assert len({(record.store_host, record.queue_id) for record in found}) == 4


def test_columns_become_what_consumers_see(cluster: EmbeddedCluster, client: BlockingClient, topic: str) -> None:
    kinds = pa.map_(pa.string(), pa.string())
    batch = {
        "body": ["eins", "zwei"],
        "tags": ["A", None],
        "keys": ["k1 k2", None],
        "properties": pa.array([[("p", "q"), ("TAGS", "no"), ("TRAN_MSG", "true")], [("TAGS", "B")]], kinds),
        "shardingKey": ["s", None],
    }
    task = TaskId(5, "query", 9)
    write(client, options(cluster, topic), batch, task=task)
    found = {record.body: properties(record) for record in stored(cluster.name_server_addr, topic)}
    first, second = found[b"eins"], found[b"zwei"]
    kept = ("TAGS", "KEYS", "p", "__SHARDINGKEY", "TRAN_MSG", "SPARK_TX")
    assert [first.get(name) for name in kept] == ["A", "k1 k2", "q", "s", None, "query/9/5/0"]
    assert [second.get(name) for name in kept] == ["B", None, None, None, None, "query/9/5/1"]


def test_rows_of_a_sharding_key_lie_in_one_queue_in_order(
    cluster: EmbeddedCluster, client: BlockingClient, topic: str
) -> None:
    """Goal: order by key over many requests, several under way."""
    keys = [f"k{n % 7}" for n in range(3_000)]
    batch = {"body": [f"{n}" for n in range(3_000)], "shardingKey": keys}
    write(client, options(cluster, topic, batch_bytes=4_096), batch)
    places: dict[str, set[object]] = {}
    order: dict[str, list[int]] = {}
    for record in stored(cluster.name_server_addr, topic):
        key = properties(record)["__SHARDINGKEY"]
        places.setdefault(key, set()).add((record.store_host, record.queue_id))
        order.setdefault(key, []).append(int(record.body))
    assert len(order) == 7
    assert all(len(each) == 1 for each in places.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_rows_choose_queue_and_topic(
    cluster: EmbeddedCluster, client: BlockingClient, filler: Filler, topic: str
) -> None:
    other = filler.topic(name=f"{topic}-b", queues=1)
    batch = {
        "body": ["1", "2", "3"],
        "topic": [topic, topic, other],
        "queueId": [1, 0, None],
        "brokerName": ["broker-0", "broker-1", None],
    }
    write(client, options(cluster, None), batch)
    found = {record.body: record for record in stored(cluster.name_server_addr, topic)}
    assert {body: record.queue_id for body, record in found.items()} == {b"1": 1, b"2": 0}
    assert str(found[b"1"].store_host.port) == cluster.broker_addrs[0].split(":")[1]
    assert str(found[b"2"].store_host.port) == cluster.broker_addrs[1].split(":")[1]
    assert bodies(cluster.name_server_addr, other) == {b"3": 1}


def test_delayed_rows_come_later(cluster: EmbeddedCluster, client: BlockingClient, topic: str) -> None:
    """Goal: level 1 is a second; a time that is over is now."""
    batch = {
        "body": ["level", "time", "now"],
        "delayTimeLevel": pa.array([1, None, 0], pa.int32()),
        "deliverTimestamp": pa.array([None, int(time.time() * 1000) + 1_000, None], pa.int64()),
    }
    write(client, options(cluster, topic), batch)
    assert bodies(cluster.name_server_addr, topic) == {b"now": 1}
    wait_until = time.monotonic() + 20
    while len(bodies(cluster.name_server_addr, topic)) < 3 and time.monotonic() < wait_until:
        time.sleep(0.1)
    assert bodies(cluster.name_server_addr, topic) == {b"now": 1, b"level": 1, b"time": 1}


def test_a_topic_comes_to_be_by_the_first_send(cluster: EmbeddedCluster, client: BlockingClient) -> None:
    """Goal: as every RocketMQ client does it, where brokers allow it."""
    name = f"Made{next(_numbers)}"
    write(client, options(cluster, name), {"body": ["a", "b"]})
    wait_until = time.monotonic() + 20
    while True:
        try:
            found = bodies(cluster.name_server_addr, name)
            break
        except TopicNotFoundError:  # the NameServer does not know yet
            assert time.monotonic() < wait_until
            time.sleep(0.1)
    assert found == {b"a": 1, b"b": 1}


def test_another_broker_takes_what_one_does_not(topic: str) -> None:
    """Goal: retriable failures send plain rows elsewhere; rows for that very broker wait for it, then fail by name."""
    with EmbeddedCluster(brokers=2) as own, BlockingClient(own.name_server_addr) as client:
        with Admin(own.name_server_addr) as admin:
            admin.topics.create(topic, queues=2)
            admin.brokers.set_config("broker-0", {"startAcceptSendRequestTimeStamp": str(1 << 60)})
        rows = [b"%d" % n for n in range(1_000)]
        assert write(client, options(own, topic), {"body": rows}).rows == 1_000
        assert bodies(own.name_server_addr, topic) == Counter(rows)
        assert {record.store_host.port for record in stored(own.name_server_addr, topic)} == {
            own.brokers[1].config.port
        }
        with pytest.raises(SparkError) as caught:
            write(client, options(own, topic, retries=1), {"body": ["x"], "brokerName": ["broker-0"]})
        assert "2 attempts failed" in str(caught.value)
        assert "broker-0: SYSTEM_ERROR" in str(caught.value)


def test_lines_that_break_are_mended(topic: str) -> None:
    """Goal: a broker that goes away for a moment, several times, costs no row."""
    with EmbeddedCluster() as own, BlockingClient(own.name_server_addr) as client:
        with Admin(own.name_server_addr) as admin:
            admin.topics.create(topic, queues=2)

        def batches() -> Iterator[pa.RecordBatch]:
            for number in range(6):
                yield pa.RecordBatch.from_pydict({"body": [b"%d-%d" % (number, row) for row in range(500)]})
                if number % 2:
                    own.restart_broker()

        written = TaskWriter(client, options(own, topic, batch_bytes=8_192), TaskId(0)).write(batches())
        assert written.rows == 3_000
        found = bodies(own.name_server_addr, topic)
    assert set(found) == {b"%d-%d" % (number, row) for number in range(6) for row in range(500)}


def test_a_task_may_begin_while_the_only_broker_is_away(topic: str) -> None:
    """Goal: the NameServer knows no such topic then; who has written to it before waits, anybody else is told."""
    with EmbeddedCluster() as own, BlockingClient(own.name_server_addr) as client:
        with Admin(own.name_server_addr) as admin:
            admin.topics.create(topic, queues=2)
        write(client, options(own, topic), {"body": ["first"]})
        own.stop_broker()
        with BlockingClient(own.name_server_addr) as other, pytest.raises(SparkError, match=topic):
            write(other, options(own, topic), {"body": ["nowhere"]})
        back = threading.Timer(0.5, own.start_broker)
        back.start()
        write(client, options(own, topic, retries=60), {"body": ["second"]})
        back.join()
        assert bodies(own.name_server_addr, topic) == {b"first": 1, b"second": 1}


def test_signed_requests_carry_the_same(cluster: EmbeddedCluster, topic: str) -> None:
    """Goal: with an account's keys batches, single and half messages are made in another way, and are equal."""
    account = Credentials(access_key="rocketq", secret_key="12345678")
    with BlockingClient(cluster.name_server_addr, credentials=account) as client:
        write(client, options(cluster, topic), {"body": ["1", "2"], "tags": ["A", "B"]})
        write(client, options(cluster, topic), {"body": ["3"], "deliverTimestamp": pa.array([1], pa.int64())})
        writer = HalfWriter(client, options(cluster, topic), TaskId(0, "q", 1))
        writer.write([pa.RecordBatch.from_pydict({"body": ["4"]})])
        group = options(cluster, topic).group
        assert not TransactionEnds(client).end_all(group, writer.halves.handles(), TransactionState.COMMIT)
    wait_until = time.monotonic() + 20
    while len(bodies(cluster.name_server_addr, topic)) < 4 and time.monotonic() < wait_until:
        time.sleep(0.1)
    assert bodies(cluster.name_server_addr, topic) == {b"1": 1, b"2": 1, b"3": 1, b"4": 1}


# Bad rows

BAD = {"body": pa.array(["good", None, "", "fine"], pa.string()), "keys": ["k0", "k1", "k2", "k3"]}


def test_a_bad_row_fails_the_task_in_one_line(cluster: EmbeddedCluster, client: BlockingClient, topic: str) -> None:
    with pytest.raises(SparkError) as caught:
        write(client, options(cluster, topic), BAD, task=TaskId(4, "q", 2))
    assert str(caught.value) == (
        f"row 1 of partition 4 of batch 2, topic {topic}: the body is null; option badRecords=skip or deadLetter goes "
        "on without such rows"
    )


def test_bad_rows_are_skipped_and_counted(cluster: EmbeddedCluster, client: BlockingClient, topic: str) -> None:
    written = write(client, options(cluster, topic, bad_records=BadRecords.SKIP), BAD)
    assert (written.rows, written.skipped) == (2, 2)
    assert bodies(cluster.name_server_addr, topic) == {b"good": 1, b"fine": 1}


def test_bad_rows_go_to_the_dead_letter_topic_with_the_reason(
    cluster: EmbeddedCluster, client: BlockingClient, filler: Filler, topic: str
) -> None:
    dead = filler.topic(name=f"{topic}-dead", queues=1)
    chosen = options(
        cluster, topic, bad_records=BadRecords.DEAD_LETTER, dead_letter_topic=dead, message_bytes_max=1_000
    )
    batch = {"body": ["a", None, "x" * 3_000, "b"], "keys": ["k0", "k1", "k2\x02", "k3"], "queueId": [0, 0, 0, 77]}
    written = write(client, chosen, batch, task=TaskId(1, "q", 2))
    assert (written.rows, written.dead_lettered) == (1, 3)
    assert bodies(cluster.name_server_addr, topic) == {b"a": 1}
    found = {properties(record)["SPARK_TX"]: record for record in stored(cluster.name_server_addr, dead)}
    assert sorted(found) == ["q/2/1/1", "q/2/1/2", "q/2/1/3"]
    reasons = [properties(found[f"q/2/1/{n}"])["SPARK_BAD_REASON"] for n in (1, 2, 3)]
    assert reasons == [
        "the body is null",
        "the body is too large: 3000 bytes, option maxMessageBytes=1000",
        f"topic {topic} has no queue 77 to write to",
    ]
    large = found["q/2/1/2"]
    assert (len(large.body), properties(large)["SPARK_BAD_BODY_BYTES"]) == (1_000, "3000")
    assert properties(large)["SPARK_BAD_TOPIC"] == topic
    assert found["q/2/1/3"].body == b"b"


def test_the_row_that_a_broker_refuses_is_found_among_its_batch(
    cluster: EmbeddedCluster, client: BlockingClient, topic: str
) -> None:
    """Goal: a limit only brokers know of costs the rows beyond it, not those sent along with them."""
    large = b"x" * (4 << 20)
    rows = [b"%d" % n for n in range(300)]
    batch = {"body": pa.array([*rows[:100], large, *rows[100:]], pa.binary())}
    chosen = options(cluster, topic, bad_records=BadRecords.SKIP, message_bytes_max=8 << 20, batch_bytes=10 << 20)
    written = write(client, chosen, batch)
    assert (written.rows, written.skipped) == (300, 1)
    assert "refused by its broker" in str(written.first_fault)
    assert bodies(cluster.name_server_addr, topic) == Counter(rows)


def test_a_topic_whose_brokers_are_all_away_may_be_there(topic: str) -> None:
    """Goal: NameServers forget a topic with its last broker, so nobody is told that it does not exist."""
    told = rf"^partition 3 was not written: .*'{topic}': there is none, or its brokers are away"
    with EmbeddedCluster(brokers=0) as names, BlockingClient(names.name_server_addr) as client:
        chosen = options(names, topic, retries=1)
        with pytest.raises(SparkError, match=told):
            write(client, chosen, {"body": ["a"]})


def test_no_answer_from_anybody_is_one_line(client: BlockingClient, cluster: EmbeddedCluster, topic: str) -> None:
    nobody = SinkOptions(connection=Connection(name_servers="127.0.0.1:1"), topic=topic, retries=1)
    with BlockingClient("127.0.0.1:1") as away, pytest.raises(SparkError) as caught:
        write(away, nobody, {"body": ["a"]})
    assert "no NameServer answered" in str(caught.value)
    assert "\n" not in str(caught.value)


# Half messages


def test_half_messages_are_seen_after_they_are_committed_only(
    cluster: EmbeddedCluster, client: BlockingClient, topic: str
) -> None:
    """Goal: a task's rows are out of sight; a commit shows each once, however often it is said; the opposite fails."""
    chosen = options(cluster, topic)
    writer = HalfWriter(client, chosen, TaskId(0, "q", 1))
    rows = [b"%d" % n for n in range(500)]
    written = writer.write([pa.RecordBatch.from_pydict({"body": rows, "keys": [f"k{n}" for n in range(500)]})])
    handles = writer.halves.handles()
    assert (written.rows, len(handles), len(set(handles))) == (500, 500, 500)
    assert not stored(cluster.name_server_addr, topic)
    ends = TransactionEnds(client)
    assert ends.end_all(chosen.group, handles[:400], TransactionState.COMMIT) == {}
    assert ends.end_all(chosen.group, handles, TransactionState.COMMIT) == {}
    found = stored(cluster.name_server_addr, topic)
    assert Counter(record.body for record in found) == Counter(rows)
    assert properties(found[0])["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "600"
    refused = ends.end_all(chosen.group, handles[:3], TransactionState.ROLLBACK)
    assert sorted(refused) == sorted(handles[:3])
    assert all("was committed before" in str(error) for error in refused.values())


def test_a_half_that_never_was_is_told_of(cluster: EmbeddedCluster, client: BlockingClient) -> None:
    strangers = [HalfHandle("broker-0", 5, 1 << 40), HalfHandle("nobody", 1, 1)]
    failures = TransactionEnds(client, retries=0).end_all("g", strangers, TransactionState.COMMIT)
    assert "no half message at log offset" in str(failures[strangers[0]])
    assert "not registered" in str(failures[strangers[1]])


def test_dead_letters_of_an_exactly_once_task_are_half_messages_too(
    cluster: EmbeddedCluster, client: BlockingClient, filler: Filler, topic: str
) -> None:
    dead = filler.topic(name=f"{topic}-dead", queues=1)
    chosen = options(cluster, topic, bad_records=BadRecords.DEAD_LETTER, dead_letter_topic=dead)
    writer = HalfWriter(client, chosen, TaskId(0, "q", 1))
    writer.write([pa.RecordBatch.from_pydict({"body": ["a", None]})])
    assert not stored(cluster.name_server_addr, dead)
    assert TransactionEnds(client).end_all(chosen.group, writer.halves.handles(), TransactionState.COMMIT) == {}
    assert len(stored(cluster.name_server_addr, dead)) == len(stored(cluster.name_server_addr, topic)) == 1
