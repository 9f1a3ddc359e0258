"""What the driver asks brokers: queues, bounds, times, keys, groups; over real sockets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from rocketq.client import Admin, Message, Producer
from rocketq.client.blocking import BlockingClient
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.flags import ExpressionType
from rocketq.spark.catalog import Catalog, as_offsets
from rocketq.spark.errors import AwayError, SparkError
from rocketq.spark.offsets import Offsets, QueueKey
from rocketq.spark.options import Connection, Fetching, Subscription
from rocketq.testing import EmbeddedCluster

MakeCluster = Callable[..., EmbeddedCluster]
CatalogOf = Callable[..., Catalog]


@pytest.fixture
def catalog_of() -> Iterator[CatalogOf]:
    """Catalogs of clusters, closed when the test is over."""
    with ExitStack() as stack:

        def make(
            cluster: EmbeddedCluster, *, retries: int = 1, pause: Callable[[float], Any] = id, **fetching: str
        ) -> Catalog:
            connection = Connection(name_servers=cluster.name_server_addr)
            made = Catalog(connection, Fetching(group="catalog-readers", retries=retries, **fetching), pause=pause)
            stack.callback(made.close)
            return made

        yield make


def fill(cluster: EmbeddedCluster, topic: str, count: int, *, broker: str = "broker-0") -> QueueKey:
    with Admin(cluster.name_server_addr) as admin:
        admin.topics.create(topic, queues=2)
    queue = MessageQueue(topic=topic, broker_name=broker, queue_id=1)
    with Producer("catalog", name_servers=cluster.name_server_addr) as producer:
        messages = [Message(topic=topic, body=b"x" * 10, keys=(f"k{n % 7}", "all")) for n in range(count)]
        for at in range(0, count, 100):
            producer.send_batch(messages[at : at + 100], queue=queue)
    return QueueKey(topic, broker, 1)


@pytest.fixture(scope="module")
def filled(rocketq_cluster: EmbeddedCluster) -> QueueKey:
    return fill(rocketq_cluster, "Catalog", 300)


def test_queues_of_topics_patterns_and_assignments(
    catalog_of: CatalogOf, rocketq_cluster: EmbeddedCluster, filled: QueueKey
) -> None:
    catalog = catalog_of(rocketq_cluster)
    both = [QueueKey("Catalog", "broker-0", 0), filled]
    assert catalog.queues(Subscription(topics=("Catalog",))) == both
    assert catalog.queues(Subscription(pattern="Cata.*")) == both
    assert catalog.queues(Subscription(pattern="Cata")) == []
    assert catalog.queues(Subscription(assigned={"X": {"b": [3]}})) == [QueueKey("X", "b", 3)]
    assert catalog.bounds(both) == {both[0]: (0, 0), filled: (0, 300)}
    assert as_offsets(catalog.bounds([filled])) == Offsets({filled: 300})


def test_a_topic_that_is_not_there_is_one_line(catalog_of: CatalogOf, rocketq_cluster: EmbeddedCluster) -> None:
    catalog = catalog_of(rocketq_cluster)
    with pytest.raises(SparkError, match=r"^topic Missing does not exist, or no broker that has it is there$"):
        catalog.queues(Subscription(topics=("Missing",)))
    assert catalog.queues(Subscription(topics=("Missing",)), missing_topics_pass=True) == []
    known = [QueueKey("Missing", "broker-0", 0)]
    with pytest.raises(SparkError, match="topic Missing does not exist"):
        catalog.queues(Subscription(topics=("Missing",)), known=known)
    elsewhere = [QueueKey("Missing", "broker-9", 0)]
    assert catalog.queues(Subscription(topics=("Missing",)), known=elsewhere) == []
    with pytest.raises(AwayError, match="Missing queue 0 of broker-9 is not there at present"):
        catalog.complete_bounds(Subscription(topics=("Missing",)), elsewhere)
    with pytest.raises(AwayError, match="topic Missing on broker-0: TOPIC_NOT_EXIST"):
        catalog.bounds(known)


def test_a_broker_that_comes_back_between_two_questions(
    catalog_of: CatalogOf, rocketq_cluster: EmbeddedCluster, filled: QueueKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: away when the route was asked for, there when the brokers were: no reason for a query to die."""
    catalog, away = catalog_of(rocketq_cluster), [True]
    asked = BlockingClient.route

    def route(client: BlockingClient, topic: str, *, fresh: bool = False) -> TopicRoute:
        return asked(client, "NotYet" if away and away.pop() else topic, fresh=fresh)

    monkeypatch.setattr(BlockingClient, "route", route)
    assert filled in catalog.queues(Subscription(topics=("Catalog",)), known=[filled])
    assert not away


def test_times_are_found_to_the_message(
    catalog_of: CatalogOf, rocketq_cluster: EmbeddedCluster, filled: QueueKey
) -> None:
    """Goal: the first message at or after a time, also where many share a millisecond."""
    catalog = catalog_of(rocketq_cluster)
    stored = [catalog.searches._calls.pull(filled, n, 1)[0].store_ms for n in range(300)]
    for ms in sorted({*stored, stored[0] - 5, stored[-1] + 5, *(each + 1 for each in stored)}):
        wanted = next((n for n, each in enumerate(stored) if each >= ms), 300)
        assert catalog.offset_at(filled, ms, (0, 300)) == wanted
    assert catalog.offset_at(filled, 0, (40, 300)) == 40
    assert catalog.offset_at(filled, 0, (7, 7)) == 7


def test_keys_are_found_through_the_index(
    catalog_of: CatalogOf, rocketq_cluster: EmbeddedCluster, filled: QueueKey
) -> None:
    """Goal: exactly the messages with these keys; None when the answer may have been cut."""
    searches = catalog_of(rocketq_cluster).searches
    assert searches.by_keys("Catalog", "broker-0", {"k3 all"}, {filled: 300}) == {filled: list(range(3, 300, 7))}
    assert searches.by_keys("Catalog", "broker-0", {"k3"}, {filled: 300}) == {filled: []}
    assert searches.by_keys("Catalog", "broker-0", {"all"}, {filled: 300}) is None
    assert searches.by_keys("Nowhere", "broker-0", {"k3"}, {filled: 300}) is None


def test_without_an_index_keys_are_not_told(catalog_of: CatalogOf, make_rocketq_cluster: MakeCluster) -> None:
    """Goal: a broker that does not index cannot say that there is nothing."""
    cluster = make_rocketq_cluster(settings={"messageIndexEnable": "false"})
    queue = fill(cluster, "NoIndex", 5)
    assert catalog_of(cluster).searches.by_keys("NoIndex", "broker-0", {"k3 all"}, {queue: 5}) is None


def test_sizes_are_measured(catalog_of: CatalogOf, rocketq_cluster: EmbeddedCluster, filled: QueueKey) -> None:
    searches = catalog_of(rocketq_cluster).searches
    assert 100 < (searches.record_bytes(filled, 0) or 0) < 400
    assert searches.record_bytes(filled, 300) is None


def test_groups_are_told_and_asked(catalog_of: CatalogOf, rocketq_cluster: EmbeddedCluster, filled: QueueKey) -> None:
    catalog = catalog_of(rocketq_cluster)
    other = QueueKey("Catalog", "broker-0", 0)
    catalog.commit("catalog-group", Offsets({filled: 120}))
    assert catalog.committed("catalog-group", [other, filled]) == {filled: 120}


def test_a_broker_that_is_away_is_asked_again_and_then_told(
    catalog_of: CatalogOf, make_rocketq_cluster: MakeCluster
) -> None:
    """Goal: batches fail with the broker's name, streams go on with the others, groups are told where they can be."""
    cluster = make_rocketq_cluster(brokers=2)
    here, away = fill(cluster, "Away", 5), fill(cluster, "Away", 6, broker="broker-1")
    pauses: list[float] = []
    catalog = catalog_of(cluster, retries=2, pause=pauses.append)
    assert catalog.bounds([here, away]) == {here: (0, 5), away: (0, 6)}
    cluster.stop_broker(1)
    with pytest.raises(AwayError, match="Away on broker-1"):
        catalog.bounds([here, away])
    assert len(pauses) == 2
    assert catalog.reachable_bounds([here, away]) == {here: (0, 5)}
    with pytest.raises(AwayError, match=r"group g: Away queue 1 of broker-1 was not told of offset 3: "):
        catalog.commit("g", Offsets({here: 2, away: 3}))
    assert catalog.committed("g", [here]) == {here: 2}
    cluster.start_broker(1)
    assert catalog.reachable_bounds([here, away]) == {here: (0, 5), away: (0, 6)}


def test_a_broker_that_does_not_filter_by_conditions_is_told_at_once(
    catalog_of: CatalogOf, make_rocketq_cluster: MakeCluster
) -> None:
    """Goal: it says so with the code of any failure; nobody waits for it to pass."""
    pauses: list[float] = []
    for filters in ("false", "true"):
        cluster = make_rocketq_cluster(settings={"enablePropertyFilter": filters})
        queue = fill(cluster, "Filtered", 3)
        catalog = catalog_of(cluster, pause=pauses.append, expression="n > 3", expression_type=ExpressionType.SQL92)
        if filters == "true":
            catalog.require_sql([queue])
            continue
        with pytest.raises(SparkError, match=r"topic Filtered on broker-0: .*does not filter by SQL92") as caught:
            catalog.require_sql([queue])
        assert not caught.value.retriable
    assert pauses == []


def test_no_name_server_is_told_with_its_address() -> None:
    connection = Connection(name_servers="127.0.0.1:1")
    catalog = Catalog(connection, Fetching(group="g", retries=0))
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1: no NameServer answered"):
        catalog.queues(Subscription(topics=("T",)))
