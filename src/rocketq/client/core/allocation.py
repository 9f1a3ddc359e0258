"""Which queues of a topic a member of a group gets. Every member computes it from the same two lists."""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rocketq.client.errors import ClientError
from rocketq.protocol.bodies.queues import MessageQueue

Queues = Sequence[MessageQueue]
VIRTUAL_NODES: Final = 10


class AllocationStrategy(Protocol):
    """Of one's own making too: pure, and the same in all members of a group, or queues are read twice or never."""

    @property
    def name(self) -> str:
        """As brokers that assign queues know it."""
        ...

    def allocate(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        """The share of `client_id`, which is one of `client_ids`; both lists are sorted and not empty."""
        ...


def java_order(text: str) -> bytes:
    """Sorts texts as Java does: by UTF-16 unit."""
    return text.encode("utf-16-be", "surrogatepass")


def share_of(
    strategy: AllocationStrategy, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]
) -> tuple[MessageQueue, ...]:
    """What this member gets; nothing when it is not (yet) on the list of members."""
    if not client_id or not queues or not client_ids:
        raise ValueError("a share needs a member, queues and the list of members")
    if client_id not in client_ids:
        return ()
    ordered = sorted(queues, key=lambda one: (java_order(one.topic), java_order(one.broker_name), one.queue_id))
    return tuple(strategy.allocate(group, client_id, ordered, sorted(set(client_ids), key=java_order)))


class Averagely:
    """Neighbouring queues; the first members get one more where they do not come out even."""

    name = "AVG"

    def allocate(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        place = client_ids.index(client_id)
        share, rest = divmod(len(queues), len(client_ids))
        start = place * share + min(place, rest)
        return queues[start : start + share + (1 if place < rest else 0)]


class ByCircle:
    """Dealt out like cards."""

    name = "AVG_BY_CIRCLE"

    def allocate(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        return queues[client_ids.index(client_id) :: len(client_ids)]


class Fixed:
    """Always these queues, independent of other members."""

    name = "CONFIG"

    def __init__(self, queues: Queues) -> None:
        self._queues = tuple(queues)

    def allocate(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        return [queue for queue in self._queues if queue in set(queues)]


class ByMachineRoom:
    """Only queues of brokers named `<room>@<name>` in one of these rooms, shared evenly."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Sequence[str]) -> None:
        self._rooms = frozenset(rooms)

    def allocate(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        near = [queue for queue in queues if self._is_near(queue.broker_name)]
        place, count = client_ids.index(client_id), len(client_ids)
        share, rest = divmod(len(near), count)
        extra = [near[place + share * count]] if rest > place else []
        return near[share * place : share * (place + 1)] + extra

    def _is_near(self, broker_name: str) -> bool:
        room, *others = broker_name.split("@")
        return len(others) == 1 and room in self._rooms


class RoomResolver(Protocol):
    """Where brokers and members stand; None counts as an error, since a guess would share queues wrongly."""

    def room_of_broker(self, queue: MessageQueue) -> str | None: ...

    def room_of_client(self, client_id: str) -> str | None: ...


class RoomUnknownError(ClientError):
    """A resolver does not know where a broker or a member stands."""


class NearbyRooms:
    """Queues go to members in their own room; those of a room without members to all, each by the inner strategy."""

    def __init__(self, inner: AllocationStrategy, resolver: RoomResolver) -> None:
        self._inner = inner
        self._resolver = resolver

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self._inner.name}"

    def allocate(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            room = _known(self._resolver.room_of_broker(queue), f"broker {queue.broker_name}")
            queues_in.setdefault(room, []).append(queue)
        clients_in: dict[str, list[str]] = {}
        for one in client_ids:
            room = _known(self._resolver.room_of_client(one), f"member {one}")
            clients_in.setdefault(room, []).append(one)
        mine: list[MessageQueue] = []
        for room, members in clients_in.items():
            if client_id in members and room in queues_in:
                mine.extend(self._inner.allocate(group, client_id, queues_in[room], members))
        for room in sorted(queues_in.keys() - clients_in.keys(), key=java_order):
            mine.extend(self._inner.allocate(group, client_id, queues_in[room], client_ids))
        return mine


def _known(room: str | None, whose: str) -> str:
    if room is None:
        raise RoomUnknownError(f"the room of {whose} is not known")
    return room


def first_md5_bytes(text: str) -> int:
    """The hash of Apache's ring."""
    return int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest()[:4], "big")


class ByConsistentHash:
    """A ring of members: one that comes or goes moves few queues of the others."""

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES, hash_of: Callable[[str], int] = first_md5_bytes) -> None:
        if virtual_nodes < 0:
            raise ValueError(f"a ring has not {virtual_nodes} nodes per member")
        self._virtual_nodes = virtual_nodes
        self._hash_of = hash_of

    def allocate(self, group: str, client_id: str, queues: Queues, client_ids: Sequence[str]) -> Queues:
        ring = {self._hash_of(f"{one}-{node}"): one for one in client_ids for node in range(self._virtual_nodes)}
        points = sorted(ring)
        if not points:
            return []
        return [queue for queue in queues if ring[self._point_of(queue, points)] == client_id]

    def _point_of(self, queue: MessageQueue, points: Sequence[int]) -> int:
        text = f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"
        return points[bisect_left(points, self._hash_of(text)) % len(points)]
