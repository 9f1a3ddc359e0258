"""Registered brokers and the queues of their topics.

Pure: time is an argument, connections to close are return values. `connection` is an opaque key of the connection a
broker registered over; it is only compared and returned.

    brokers    broker name           -> cluster, {broker id: address}
    topics     topic -> broker name  -> queue counts and permission
    live       (broker name, address) -> expiry, connection, data version
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from rocketq.protocol.bodies.queues import DataVersion
from rocketq.protocol.bodies.routes import QueueData
from rocketq.protocol.bodies.topics import TopicConfig, TopicConfigTable
from rocketq.protocol.fastjson import run_steps
from rocketq.protocol.flags import Perm

LIFE_MS: Final = 120_000
MASTER_ID: Final = 0

PermChange = Callable[[int], int]


@dataclass(slots=True)
class Broker:
    """All replicas of one broker name."""

    cluster: str
    addrs: dict[int, str] = field(default_factory=dict)
    acting_master: bool | None = None


@dataclass(slots=True)
class LiveBroker:
    """One replica as of its last registration or heartbeat."""

    connection: Hashable
    updated_ms: int
    life_ms: int
    data_version: DataVersion
    ha_addr: str | None
    filter_servers: tuple[str, ...]
    deleted_topics: set[str] = field(default_factory=set)
    """Topics deleted on the NameServer that the broker may still list; a new data version restores them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """The registration of one broker."""

    cluster: str
    broker_name: str
    broker_id: int
    addr: str
    ha_addr: str | None = None
    life_ms: int | None = None
    acting_master: bool | None = None
    topics: TopicConfigTable = field(default_factory=TopicConfigTable)
    filter_servers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Master:
    """The addresses returned to a slave."""

    addr: str
    ha_addr: str | None


class RouteTable:
    """Brokers, topics and live registrations; `route_views` reads them."""

    def __init__(self) -> None:
        self.brokers: dict[str, Broker] = {}
        self.topics: dict[str, dict[str, QueueData]] = {}
        self.live: dict[tuple[str, str], LiveBroker] = {}

    # registration

    def register(self, registration: Registration, connection: Hashable, now_ms: int) -> Master | None:
        """Store a registration; returns the master for a slave."""
        return run_steps(self.register_steps(registration, connection, now_ms))

    def register_steps(
        self, registration: Registration, connection: Hashable, now_ms: int
    ) -> Generator[None, None, Master | None]:
        """As `register`, in steps of microseconds. One registration runs at a time; a broker that is removed between
        two steps stays removed."""
        name, addr = registration.broker_name, registration.addr
        if self._is_outdated(registration):
            return None  # its earlier registration, if any, expires
        is_new_id = self._set_addr(registration)
        before = self.live.get((name, addr))
        is_newer = (
            is_new_id or before is None or not same_version(before.data_version, registration.topics.data_version)
        )
        self.live[name, addr] = LiveBroker(
            connection=connection,
            updated_ms=now_ms,
            life_ms=registration.life_ms or LIFE_MS,
            data_version=registration.topics.data_version,
            ha_addr=registration.ha_addr,
            filter_servers=registration.filter_servers,
            deleted_topics=set() if is_newer or before is None else before.deleted_topics,
        )
        if registration.broker_id == MASTER_ID:
            yield from self._add_topics(registration, is_newer)
            return None
        return self._master(name)

    def heartbeat(self, broker_name: str, addr: str, now_ms: int) -> bool:
        """Renew a broker; returns whether it is registered."""
        live = self.live.get((broker_name, addr))
        if live is not None:
            live.updated_ms = now_ms
        return live is not None

    def data_version(self, broker_name: str, addr: str) -> DataVersion | None:
        """The data version of a broker's last registration; None when it is not registered."""
        live = self.live.get((broker_name, addr))
        return None if live is None else live.data_version

    # removal

    def unregister(self, broker_name: str, broker_id: int, addr: str) -> None:
        """Remove a broker; only if this id has this address."""
        broker = self.brokers.get(broker_name)
        if broker is not None and broker.addrs.get(broker_id) == addr:
            del broker.addrs[broker_id]
            self.live.pop((broker_name, addr), None)
            self._drop_if_empty(broker_name)

    def disconnect(self, connection: Hashable) -> list[str]:
        """Remove all brokers last registered over a closed connection; returns their addresses."""
        return self._remove([key for key, live in self.live.items() if live.connection == connection])

    def expire(self, now_ms: int) -> list[Hashable]:
        """Remove expired brokers; returns the connections to close."""
        late = {key: live.connection for key, live in self.live.items() if live.updated_ms + live.life_ms < now_ms}
        self._remove(late)
        return list(late.values())

    def forget_topic(self, topic: str, cluster: str | None = None) -> None:
        """Remove a topic, of one cluster or of all."""
        queues = self.topics.get(topic, {})
        for name in [name for name in queues if cluster is None or self.brokers[name].cluster == cluster]:
            del queues[name]
            for (live_name, _), live in self.live.items():
                if live_name == name:
                    live.deleted_topics.add(topic)
        if not queues:
            self.topics.pop(topic, None)

    # permissions

    def wipe_write_perm(self, broker_name: str) -> int:
        """Remove the write permission of a broker's topics until its data version changes; returns their count."""
        return self._change_perm(broker_name, lambda perm: perm & ~Perm.WRITE)

    def add_write_perm(self, broker_name: str) -> int:
        return self._change_perm(broker_name, lambda perm: Perm.READ | Perm.WRITE)

    def add_topic(self, topic: str, queues: Iterable[QueueData]) -> None:
        """Add queues of registered brokers on request of an operator."""
        known = {data.broker_name: data for data in queues if data.broker_name in self.brokers}
        if known:
            self.topics.setdefault(topic, {}).update(known)

    # inside

    def _is_outdated(self, registration: Registration) -> bool:
        """Whether another address has this id with a newer state: the registering broker is a former master."""
        broker = self.brokers.get(registration.broker_name)
        holder = broker.addrs.get(registration.broker_id) if broker is not None else None
        if holder is None or holder == registration.addr:
            return False
        live = self.live.get((registration.broker_name, holder))
        return live is not None and _state(live.data_version) > _state(registration.topics.data_version)

    def _set_addr(self, registration: Registration) -> bool:
        """Set the address of this id and remove it from other ids; returns whether the id was free."""
        broker = self.brokers.setdefault(registration.broker_name, Broker(registration.cluster))
        broker.cluster = registration.cluster
        broker.acting_master = registration.acting_master
        was_free = registration.broker_id not in broker.addrs
        for broker_id in [one for one, addr in broker.addrs.items() if addr == registration.addr]:
            del broker.addrs[broker_id]
        broker.addrs[registration.broker_id] = registration.addr
        return was_free

    def _add_topics(self, registration: Registration, is_newer: bool) -> Generator[None, None, None]:
        """Topics missing from the registration stay. With an unchanged data version only unknown topics are added:
        a wiped permission must last, and a registration of a single topic must not hide the others."""
        name, key = registration.broker_name, (registration.broker_name, registration.addr)
        live = self.live[key]
        for topic, config in registration.topics.topics.items():
            if self.live.get(key) is not live:
                return
            queues = self.topics.get(topic)
            if is_newer or ((queues is None or name not in queues) and topic not in live.deleted_topics):
                self.topics.setdefault(topic, {})[name] = _queue_data(name, config)
            yield

    def _master(self, broker_name: str) -> Master | None:
        addr = self.brokers[broker_name].addrs.get(MASTER_ID)
        live = self.live.get((broker_name, addr)) if addr is not None else None
        return None if addr is None or live is None else Master(addr, live.ha_addr)

    def _remove(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        removed = []
        for name, addr in keys:
            broker = self.brokers.get(name)
            ids = [one for one, at in broker.addrs.items() if at == addr] if broker is not None else []
            for broker_id in ids:
                self.unregister(name, broker_id, addr)
            self.live.pop((name, addr), None)
            removed.append(addr)
        return removed

    def _drop_if_empty(self, broker_name: str) -> None:
        """Remove a broker name without addresses, with its queues."""
        if self.brokers[broker_name].addrs:
            return
        del self.brokers[broker_name]
        for topic in [topic for topic, queues in self.topics.items() if broker_name in queues]:
            del self.topics[topic][broker_name]
            if not self.topics[topic]:
                del self.topics[topic]

    def _change_perm(self, broker_name: str, change: PermChange) -> int:
        """Topics with equal queues share one changed object, which makes this fast for many topics."""
        changed = [queues for queues in self.topics.values() if broker_name in queues]
        changes: dict[tuple[int, int, int, int], QueueData] = {}
        for queues in changed:
            data = queues[broker_name]
            key = (data.read_queue_count, data.write_queue_count, data.perm, data.topic_sys_flag)
            if key not in changes:
                changes[key] = replace(data, perm=int(change(data.perm)))
            queues[broker_name] = changes[key]
        return len(changed)


def same_version(one: DataVersion, other: DataVersion) -> bool:
    """Compare data versions; a version without a state, as before 5.0, has state 0."""
    return (one.counter, one.timestamp_ms, _state(one)) == (other.counter, other.timestamp_ms, _state(other))


def _state(version: DataVersion) -> int:
    return version.state_version or 0


def _queue_data(broker_name: str, config: TopicConfig) -> QueueData:
    return QueueData(
        broker_name=broker_name,
        read_queue_count=config.read_queue_count,
        write_queue_count=config.write_queue_count,
        perm=config.perm,
        topic_sys_flag=config.topic_sys_flag,
    )
