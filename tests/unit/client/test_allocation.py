"""Shares of queues: the vectors of the reference, and what every strategy must keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.client.core.allocation import (
    AllocationStrategy,
    Averagely,
    ByCircle,
    ByConsistentHash,
    ByMachineRoom,
    Fixed,
    NearbyRooms,
    RoomUnknownError,
    share_of,
)
from rocketq.protocol.bodies.queues import MessageQueue

CLIENTS = ["10.0.0.1@100", "10.0.0.2@200", "10.0.0.3@300"]


def queues(count: int, broker_name: str = "broker-a", topic: str = "TopicTest") -> list[MessageQueue]:
    return [MessageQueue(topic=topic, broker_name=broker_name, queue_id=number) for number in range(count)]


def ids(strategy: AllocationStrategy, client_id: str, of: list[MessageQueue], clients: list[str]) -> list[int]:
    return [queue.queue_id for queue in share_of(strategy, "g", client_id, of, clients)]


@pytest.mark.parametrize(
    ("strategy", "shares"),
    [
        (Averagely(), [[0, 1, 2], [3, 4, 5], [6, 7]]),
        (ByCircle(), [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (ByConsistentHash(), [[0, 2], [1, 5, 6, 7], [3, 4]]),
    ],
    ids=["avg", "circle", "hash"],
)
def test_the_shares_are_those_of_apache(strategy: AllocationStrategy, shares: list[list[int]]) -> None:
    """Goal: members of mixed groups come to the same result; vectors computed by 4.7.1."""
    assert [ids(strategy, client, queues(8), CLIENTS) for client in CLIENTS] == shares


def test_averages_that_do_not_come_out_even() -> None:
    clients = ["a", "b", "c", "d"]
    assert [ids(Averagely(), one, queues(10), clients) for one in clients] == [[0, 1, 2], [3, 4, 5], [6, 7], [8, 9]]
    clients = ["a", "b", "c", "d", "e"]
    assert [ids(Averagely(), one, queues(3), clients) for one in clients] == [[0], [1], [2], [], []]


@given(
    queue_count=st.integers(1, 40),
    clients=st.sets(st.text(min_size=1, max_size=5), min_size=1, max_size=9),
    strategy=st.sampled_from([Averagely(), ByCircle(), ByConsistentHash()]),
)
def test_every_queue_has_exactly_one_owner(queue_count: int, clients: set[str], strategy: AllocationStrategy) -> None:
    """Goal: whatever the names are, nothing is read twice and nothing is left out."""
    found = [queue for one in clients for queue in share_of(strategy, "g", one, queues(queue_count), list(clients))]
    assert len(found) == queue_count
    assert set(found) == set(queues(queue_count))


def test_order_is_that_of_utf16() -> None:
    """Goal: Java sorts a character beyond the first plane before one at the end of it."""
    clients = ["\U0001f680", "\uff21"]
    assert ids(Averagely(), "\U0001f680", queues(2), clients) == [0]


def test_a_member_not_on_the_list_gets_nothing() -> None:
    assert share_of(Averagely(), "g", "x", queues(3), ["a"]) == ()
    with pytest.raises(ValueError):
        share_of(Averagely(), "g", "x", [], ["x"])


def test_a_fixed_share_keeps_to_queues_there_are() -> None:
    wanted = [queues(4)[2], queues(1, topic="Other")[0]]
    assert ids(Fixed(wanted), "a", queues(4), ["a", "b"]) == [2]


def test_rooms_by_broker_name() -> None:
    """Goal: only `<room>@<name>` with one @ and an allowed room; the share is cut from what is left."""
    near = queues(3, "r1@b")
    far = [*queues(2, "r2@b"), *queues(2, "r1@b@c"), *queues(2, "plain")]
    strategy = ByMachineRoom(["r1"])
    assert list(share_of(strategy, "g", "a", [*far, *near], ["a", "b"])) == [near[0], near[2]]
    assert list(share_of(strategy, "g", "b", [*far, *near], ["a", "b"])) == [near[1]]


class Rooms:
    def room_of_broker(self, queue: MessageQueue) -> str | None:
        return queue.broker_name.partition("@")[0]

    def room_of_client(self, client_id: str) -> str | None:
        return client_id.partition("@")[0] if "@" in client_id else None


def test_nearby_rooms_first_and_orphaned_rooms_for_all() -> None:
    strategy = NearbyRooms(Averagely(), Rooms())
    clients = ["r1@a", "r1@b", "r2@c"]
    all_queues = [*queues(2, "r1@x"), *queues(2, "r2@x"), *queues(3, "r9@x")]
    shares = {one: list(share_of(strategy, "g", one, all_queues, clients)) for one in clients}
    assert shares["r1@a"] == [queues(2, "r1@x")[0], queues(3, "r9@x")[0]]
    assert shares["r2@c"] == [*queues(2, "r2@x"), queues(3, "r9@x")[2]]
    assert sorted(len(share) for share in shares.values()) == [2, 2, 3]
    assert strategy.name == "MACHINE_ROOM_NEARBY-AVG"
    with pytest.raises(RoomUnknownError, match="member nowhere"):
        share_of(strategy, "g", "nowhere", all_queues, ["nowhere"])


def test_a_ring_without_nodes_or_with_a_hash_of_ones_own() -> None:
    with pytest.raises(ValueError):
        ByConsistentHash(-1)
    assert ids(ByConsistentHash(0), "a", queues(2), ["a"]) == []
    assert ids(ByConsistentHash(1, hash_of=lambda text: 0), "b", queues(2), ["a", "b"]) == [0, 1]
