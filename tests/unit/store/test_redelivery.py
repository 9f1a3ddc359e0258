"""Waiting messages put into the queues they are for, from record to record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rocketq.model import Host, NewMessage, Record
from rocketq.protocol.messages import decode_records
from rocketq.protocol.properties import encode_properties
from rocketq.runtime.clock import ManualClock
from rocketq.store import AppendStatus, Store, StoreConfig
from rocketq.store.delivery_progress import DeliveryProgress, delivered_since
from rocketq.store.redelivery import Redeliverer

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def config(tmp_path: Path) -> StoreConfig:
    return StoreConfig(
        root=tmp_path / "store",
        segment_bytes=16 << 10,
        message_bytes_max=8 << 10,
        queue_file_bytes=20 * 40,
        index_slots=50,
        index_units=200,
        delay_levels="1s 5s",
        disk_used_percent_max=99,
        disk_force_clean_ratio=0.998,
        disk_refuse_ratio=0.999,
    )


def put(store: Store, number: int, born_host: Host | None = None, **given: str) -> None:
    named = {"REAL_TOPIC": "T", "REAL_QID": str(number % 3), "DELAY": "1", "KEYS": f"k{number}", "TAGS": "x"} | given
    properties = encode_properties({name: value for name, value in named.items() if value != "-"})
    message = NewMessage(topic=SCHEDULE, queue_id=0, body=b"%d" % number, properties=properties, flag=number)
    message = message if born_host is None else replace(message, born_host=born_host)
    assert store.append(message).status is AppendStatus.OK


def records(store: Store, topic: str, queue_id: int) -> list[Record]:
    found: list[Record] = []
    while (result := store.read(topic, queue_id, len(found), count_max=32)).count:
        found += decode_records(result.records)
    return found


def deliver_all(store: Store, redeliverer: Redeliverer, clock: ManualClock, first: int = 0) -> int:
    offset, total = first, 0
    while True:
        done = redeliverer.deliver_due(SCHEDULE, 0, offset, now_ms=clock.now_ms(), count_max=7)
        assert done.failure is None
        offset, total = done.next_offset, total + done.delivered
        if done.due_ms is None or done.due_ms > clock.now_ms():
            return total


def test_messages_go_to_their_queues_across_files_of_every_kind(config: StoreConfig, clock: ManualClock) -> None:
    """Goal: log, queue and index files all roll on the way, and nothing is lost, repeated or out of order."""
    with Store.open(config, clock=clock, services=False) as store:
        for number in range(500):
            put(store, number)
        redeliverer = Redeliverer(store)
        assert deliver_all(store, redeliverer, clock) == 0
        clock.advance(1_000)
        assert deliver_all(store, redeliverer, clock) == 500
        assert sum(count.count for count in redeliverer.take_counts()) == 500
        assert redeliverer.take_counts() == []
        for queue_id in range(3):
            found = records(store, "T", queue_id)
            assert [int(record.body) for record in found] == list(range(queue_id, 500, 3))
            assert {record.store_ms for record in found} == {clock.now_ms()}
            assert all(record.flag == int(record.body) for record in found)
        assert [record.body for record in store.query("T", "k77").records] == [b"77"]
    with Store.open(config, clock=clock, services=False) as store:
        assert len(records(store, "T", 0)) == 167
        sources = sorted(offset for queue_id, offset in delivered_since(store, 0, SCHEDULE.encode()))
        assert sources == list(range(500))


def test_each_goes_to_its_own_place_whatever_went_before_it(config: StoreConfig, clock: ManualClock) -> None:
    """Goal: topics of equal lengths, runs of one place and turns of many, hosts of both kinds: none is mixed up."""
    places = [("T", 0), ("T", 0), ("U", 0), ("U", 1), ("T", 1), ("TU", 1), ("U", 1), ("T", 0)]
    hosts = [Host.of("10.0.0.1", 80), Host.of("10.0.0.1", 81), Host.of("::1", 80), Host.of("10.0.0.1", 80)]
    with Store.open(config, clock=clock, services=False) as store:
        for number in range(64):
            topic, queue_id = places[number % len(places)]
            put(store, number, hosts[number // 3 % len(hosts)], REAL_TOPIC=topic, REAL_QID=str(queue_id))
        clock.advance(1_000)
        redeliverer = Redeliverer(store)
        assert deliver_all(store, redeliverer, clock) == 64
        for place in set(places):
            found = records(store, *place)
            assert [int(record.body) for record in found] == [n for n in range(64) if places[n % len(places)] == place]
            assert all(record.born_host == hosts[int(record.body) // 3 % len(hosts)] for record in found)
        assert {(count.topic, count.count) for count in redeliverer.take_counts()} >= {("TU", 8)}


def test_what_cannot_be_delivered_is_passed_over(config: StoreConfig, clock: ManualClock) -> None:
    """Goal: one bad message does not stop its level."""
    with Store.open(config, clock=clock, services=False) as store:
        put(store, 0)
        for given in (
            {"REAL_TOPIC": "-"},
            {"REAL_QID": "-"},
            {"REAL_QID": "many"},
            {"REAL_QID": "999999999"},
            {"REAL_TOPIC": "no topic"},
            {"REAL_TOPIC": "Never"},
        ):
            put(store, 3, **given)
        put(store, 6)
        clock.advance(1_000)
        redeliverer = Redeliverer(store, may_deliver_to=lambda topic: topic != "Never")
        assert deliver_all(store, redeliverer, clock) == 2
        assert [record.body for record in records(store, "T", 0)] == [b"0", b"6"]
        assert store.max_offset("Never", 0) == 0


def test_a_unit_with_a_tag_hash_in_place_of_its_time_is_not_early(config: StoreConfig, clock: ManualClock) -> None:
    with Store.open(config, clock=clock, services=False) as store:
        put(store, 0, DELAY="2")
        queue = store.queues.get(SCHEDULE, 0)
        assert queue is not None
        unit = queue.unit(0)
        assert unit is not None
        queue.put_at(0, unit[0], unit[1], 120)
        redeliverer = Redeliverer(store)
        done = redeliverer.deliver_due(SCHEDULE, 0, 0, now_ms=clock.now_ms(), count_max=5)
        assert (done.delivered, done.due_ms) == (0, clock.now_ms() + 5_000)
        clock.advance(5_000)
        assert deliver_all(store, redeliverer, clock) == 1


def test_a_refusing_store_is_told_and_tried_again(config: StoreConfig, clock: ManualClock) -> None:
    with Store.open(config, clock=clock, services=False) as store:
        put(store, 0)
        clock.advance(1_000)
        queue = store.queues.get(SCHEDULE, 0)
        assert queue is not None
        redeliverer = Redeliverer(store)
        store.health.disk_full = "the disk is full"
        done = redeliverer.deliver_due(SCHEDULE, 0, 0, now_ms=clock.now_ms(), count_max=5)
        assert (done.next_offset, done.delivered, done.failure) == (0, 0, "the disk is full")
        store.health.disk_full = None
        assert deliver_all(store, redeliverer, clock) == 1


def test_a_deleted_topic_is_not_written_to_behind_its_back(config: StoreConfig, clock: ManualClock) -> None:
    with Store.open(config, clock=clock, services=False) as store:
        put(store, 0)
        put(store, 3)
        clock.advance(1_000)
        queue = store.queues.get(SCHEDULE, 0)
        assert queue is not None
        redeliverer = Redeliverer(store)
        redeliverer.deliver_due(SCHEDULE, 0, 0, now_ms=clock.now_ms(), count_max=1)
        store.delete_topic("T")
        assert deliver_all(store, redeliverer, clock, 1) == 1
        (record,) = records(store, "T", 0)
        assert (record.body, record.queue_offset) == (b"3", 0)


# progress


def test_progress_is_known_to_the_message_whatever_was_saved(config: StoreConfig, clock: ManualClock) -> None:
    """Goal: deliveries behind the page's mark are read from the log; what another broker did beyond it wins."""
    with Store.open(config, clock=clock, services=False) as store:
        for number in range(30):
            put(store, number)
        clock.advance(1_000)
        progress = DeliveryProgress(store)
        assert progress.load({}) == {}
        assert deliver_all(store, Redeliverer(store), clock) == 30
        progress.put(1, 4)
        progress.close()
        again = DeliveryProgress(store)
        assert again.load({1: 4}) == {1: 30}
        again.close()
        elsewhere = DeliveryProgress(store)
        assert elsewhere.load({1: 35}) == {1: 35}
        elsewhere.close()


def test_a_page_that_is_ahead_of_the_log_does_not_count(config: StoreConfig, clock: ManualClock) -> None:
    """Goal: after a power cut nothing is lost, rather delivered again."""
    with Store.open(config, clock=clock, services=False) as store:
        for number in range(10):
            put(store, number)
        end = store.log_end
        clock.advance(1_000)
        progress = DeliveryProgress(store)
        progress.load({})
        deliver_all(store, Redeliverer(store), clock)
        progress.put(1, 10)
        progress.mark()
        progress.close()
        store.truncate_to(end)
        again = DeliveryProgress(store)
        assert again.load({1: 2}) == {1: 2}
        again.close()


def test_a_page_of_another_size_is_made_anew(config: StoreConfig, clock: ManualClock) -> None:
    with Store.open(replace(config), clock=clock, services=False) as store:
        (store.config.root / "config").mkdir(exist_ok=True)
        (store.config.root / "config" / "deliveryProgress").write_bytes(b"short")
        progress = DeliveryProgress(store)
        assert progress.load({3: 5}) == {3: 5}
        progress.close()
