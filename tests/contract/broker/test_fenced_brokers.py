"""Brokers that are replicas of each other, in one process, with a control store in memory that can be away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketq.broker import Broker
from rocketq.broker.ha.fenced_replicas import FencedReplication
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.replication.control import ControlError
from rocketq.replication.control_memory import ControlTable, MemoryControl
from rocketq.runtime.clock import SystemClock
from tests.contract.broker.kit import (
    connected,
    eventually,
    heartbeat,
    make_topic,
    over_loopback,
    props,
    pull_fields,
    send,
    send_fields,
)
from tests.contract.broker.test_replication import make_broker, name_server, running

FENCED = {
    "haProtocol": "fenced",
    "haControlStore": "etcd://127.0.0.1:1",
    "haLeaseTimeout": "1200",
    "haLeaseTtl": "30000",
    "slaveTimeout": "1000",
}


class ControlThatMayBeAway(MemoryControl):
    away = False

    async def keep_alive(self, lease_id: int) -> None:
        if self.away:
            raise ControlError("away")
        await super().keep_alive(lease_id)


@pytest.fixture
def controls(monkeypatch: pytest.MonkeyPatch) -> list[ControlThatMayBeAway]:
    """Every broker's own, over one table."""
    made: list[ControlThatMayBeAway] = []
    table = ControlTable()

    def make(config: object) -> ControlThatMayBeAway:
        made.append(ControlThatMayBeAway(SystemClock(), table))
        return made[-1]

    monkeypatch.setattr("rocketq.broker.ha.fenced_replicas.control_store", make)
    return made


def fenced(broker: Broker) -> FencedReplication:
    assert isinstance(broker.parts.ha.replication, FencedReplication)
    return broker.parts.ha.replication


@asynccontextmanager
async def replicas(folder: Path, **given: str) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master and a slave that is in sync."""
    async with name_server(folder) as names:
        one, two = (make_broker(folder / name, names.addr, **FENCED, **given) for name in "ab")
        async with running(one):

            async def leads() -> bool:
                return not one.config.is_slave

            await eventually(leads, 20)
            async with running(two):

                async def in_sync() -> bool:
                    term = fenced(one).replica.agent.term
                    return term is not None and len(term.in_sync) == 2

                await eventually(in_sync, 20)
                yield one, two


@over_loopback
async def test_a_change_of_tables_is_at_the_slave_when_it_is_answered(
    tmp_path: Path, controls: list[ControlThatMayBeAway]
) -> None:
    """Goal: topics made by tools and by sends, groups made by heartbeats: whoever may be elected has them, on disk."""
    async with replicas(tmp_path) as (master, slave), connected(master.addr) as (one,):
        await make_topic(one, "Made", 3)
        assert slave.parts.topics.table.get("Made") == master.parts.topics.table.get("Made")
        assert slave.parts.files.topics.load().topics["Made"].read_queue_count == 3
        assert (await send(one, "ByItself")).code == ResponseCode.SUCCESS
        assert slave.parts.topics.table.get("ByItself") == master.parts.topics.table.get("ByItself")
        await heartbeat(one, "c1", "readers", topic="Made")
        assert slave.parts.groups.table.get("readers") is not None
        assert (await one.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Made"})).code == 0
        assert slave.parts.topics.table.get("Made") is None
        assert slave.parts.topics.table.data_version == master.parts.topics.table.data_version


@over_loopback
async def test_a_topic_made_again_starts_at_nothing_at_the_slave_too(
    tmp_path: Path, controls: list[ControlThatMayBeAway]
) -> None:
    """Goal: whoever is elected has the messages of the second life, and none of the first."""
    async with replicas(tmp_path) as (master, slave), connected(master.addr) as (one,):

        async def slave_has_all() -> bool:
            return slave.parts.store.log_end == master.parts.store.log_end

        for life, count in (("old", 3), ("new", 2)):
            await make_topic(one, "Again", 1)
            for number in range(count):
                answer = await send(one, "Again", body=b"%s %d" % (life.encode(), number))
                assert answer.code == ResponseCode.SUCCESS
                assert answer.ext_fields["queueOffset"] == str(number)
            await eventually(slave_has_all, 20)
            if life == "old":
                assert (await one.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Again"})).code == 0
                assert not slave.parts.store.queues.of_topic("Again")
        (queue,) = slave.parts.store.queues.of_topic("Again")
        assert (queue.min_offset, queue.end_offset) == (0, 2)


@over_loopback
async def test_a_topic_whose_last_messages_come_late_is_not_made_by_the_next_master(
    tmp_path: Path, controls: list[ControlThatMayBeAway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the deletion is answered while the slave lacks messages of the topic; elected, it has neither."""
    async with replicas(tmp_path) as (master, slave), connected(master.addr) as (one,):
        await make_topic(one, "Gone", 1)
        assert (await send(one, "Gone")).code == ResponseCode.SUCCESS
        with monkeypatch.context() as patch:
            (link,) = fenced(master).replica.listener.links
            patch.setattr(link, "feed", lambda: None)
            assert (await send(one, "Gone")).code == ResponseCode.FLUSH_SLAVE_TIMEOUT
            assert (await one.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})).code == 0
            assert not slave.parts.store.queues.of_topic("Gone")
        link.feed()

        async def slave_has_all() -> bool:
            return slave.parts.store.log_end == master.parts.store.log_end

        await eventually(slave_has_all, 20)
        fenced(master).replica.switch(0)

        async def leads() -> bool:
            return not slave.config.is_slave

        await eventually(leads, 20)
        assert slave.parts.topics.table.get("Gone") is None
        assert not slave.parts.store.queues.of_topic("Gone")


@over_loopback
async def test_whoever_listens_at_the_masters_address_cannot_empty_a_slaves_tables(
    tmp_path: Path, controls: list[ControlThatMayBeAway]
) -> None:
    """Goal: a master that came back with an empty disk, before its lease ran out, is asked and changes nothing."""
    async with replicas(tmp_path) as (master, slave), connected(master.addr) as (one,):
        await make_topic(one, "Kept", 16)
        await heartbeat(one, "c1", "readers", topic="Kept")
        empty = make_broker(tmp_path / "empty", "")
        async with running(empty):
            assert await fenced(slave)._tables.copy(empty.addr) is None
        assert slave.parts.topics.table.get("Kept") == master.parts.topics.table.get("Kept")
        assert slave.parts.groups.table.get("readers") is not None


@over_loopback
async def test_a_change_that_a_member_does_not_take_is_not_called_done(
    tmp_path: Path, controls: list[ControlThatMayBeAway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: the tool is told what is where; a moment later the same change succeeds."""
    async with replicas(tmp_path) as (master, slave), connected(master.addr) as (one,):
        hung = asyncio.Event()

        async def wait_long() -> None:
            await hung.wait()

        with monkeypatch.context() as patch:
            patch.setattr(slave, "save_tables", wait_long)
            fields = {
                "topic": "Made",
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
                "topicFilterType": "SINGLE_TAG",
            }
            fields |= {"defaultTopic": "TBW102", "topicSysFlag": 0, "order": "false"}
            answer = await one.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark is not None
            assert "replica 2" in answer.remark
        hung.set()
        answer = await one.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == ResponseCode.SUCCESS


@over_loopback
async def test_services_of_a_master_wait_while_it_has_no_lease(
    tmp_path: Path, controls: list[ControlThatMayBeAway], caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: `available`: sends go on; deliveries, checks, deletion and locks wait until the lease is back."""
    async with replicas(tmp_path) as (master, _), connected(master.addr) as (one,):
        await make_topic(one, "T", 1)
        caplog.set_level("INFO")
        controls[0].away = True
        agent, clock = fenced(master).replica.agent, SystemClock()

        async def is_over() -> bool:
            return not agent.has_lease(clock.monotonic_ms())

        await eventually(is_over, 20)
        assert not master.parts.lease.is_valid()
        assert master.parts.store.retention.kept_from == 0
        assert (await send(one, "T", b"at once")).code == ResponseCode.SUCCESS
        assert (await send(one, "T", b"soon", properties=props(DELAY="1"))).code == ResponseCode.SUCCESS
        assert (await send(one, "T", b"timed", properties=props(TIMER_DELAY_MS="10"))).code == ResponseCode.SUCCESS
        await asyncio.sleep(1.5)  # long enough for a delivery, were there one
        assert master.parts.store.max_offset("T", 0) == 1
        controls[0].away = False

        async def is_delivered() -> bool:
            return master.parts.store.max_offset("T", 0) == 3

        await eventually(is_delivered, 20)
        assert master.parts.store.retention.kept_from != 0
        assert "has no valid lease" in caplog.text
        assert "is valid again" in caplog.text


@over_loopback
async def test_a_strict_master_serves_by_the_kernel_until_its_lease_ends(
    tmp_path: Path, controls: list[ControlThatMayBeAway]
) -> None:
    """Goal: a valid lease costs no request its fast path; without one nothing is stored or read, by anybody."""
    async with replicas(tmp_path, haLeaseMode="strict") as (master, _), connected(master.addr) as (one,):
        await make_topic(one, "T", 1)
        feed, store, agent, clock = (
            master.fast_paths[0],
            master.parts.store,
            fenced(master).replica.agent,
            SystemClock(),
        )

        async def is_hot() -> bool:
            sends, pulls = feed.taken, feed.pulls_taken
            sent = await send(one, "T")
            read = await one.ask(RequestCode.PULL_MESSAGE, pull_fields("T"))
            return (sent.code, read.code) == (0, 0) and (feed.taken, feed.pulls_taken) == (sends + 1, pulls + 1)

        async def is_over() -> bool:
            return not agent.has_lease(clock.monotonic_ms())

        await heartbeat(one, "c1", "g", topic="T")
        await eventually(is_hot, 20)
        controls[0].away = True
        await eventually(is_over, 20)
        known = feed.taken, feed.pulls_taken, store.max_offset("T", 0)
        for code, fields in (
            (RequestCode.SEND_MESSAGE, send_fields("T", 0)),
            (RequestCode.PULL_MESSAGE, pull_fields("T")),
        ):
            assert (await one.ask(code, fields, b"body")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert (feed.taken, feed.pulls_taken, store.max_offset("T", 0)) == known
        controls[0].away = False
        await eventually(is_hot, 20)


@over_loopback
async def test_a_new_master_delivers_timers_where_the_old_one_was(
    tmp_path: Path, controls: list[ControlThatMayBeAway]
) -> None:
    """Goal: what was delivered before the switch is not delivered again; what waits is, once, and at its time."""
    async with replicas(tmp_path) as (master, slave), connected(master.addr) as (one,):
        await make_topic(one, "T", 1)
        for number in range(3):
            properties = props(TIMER_DELAY_MS="10", UNIQ_KEY=f"early-{number}")
            assert (await send(one, "T", b"early", properties=properties)).code == ResponseCode.SUCCESS
        properties = props(TIMER_DELAY_MS="9000", UNIQ_KEY="late")
        assert (await send(one, "T", b"late", properties=properties)).code == ResponseCode.SUCCESS

        async def is_delivered() -> bool:
            return slave.parts.store.max_offset("T", 0) == 3

        await eventually(is_delivered, 20)

        async def is_told() -> bool:
            told = fenced(slave)._tables.timer_point
            return told is not None and told[0].queue_offset == 4

        await eventually(is_told, 20)
        await asyncio.sleep(2.5)  # for a point of the master's wheel behind the deliveries
        fenced(master).replica.switch(0)

        async def leads() -> bool:
            return not slave.config.is_slave

        await eventually(leads, 20)

        async def late_is_delivered() -> bool:
            return slave.parts.store.max_offset("T", 0) >= 4

        await eventually(late_is_delivered, 30)
        await asyncio.sleep(0.5)  # long enough for more, were there any
        assert slave.parts.store.max_offset("T", 0) == 4
        assert slave.parts.delay.timers.waiting_counts().topics["T"].count == 0
