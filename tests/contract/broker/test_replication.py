"""Masters and slaves over loopback: the classic stream, the tables, who may write and who may read."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import struct
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rocketq.broker import Broker, BrokerConfig
from rocketq.client import AsyncProducer, AsyncPushConsumer, Message, PushConfig
from rocketq.errors import ConfigError, StoreError
from rocketq.nameserver import NameServer, NameServerConfig
from rocketq.protocol.bodies.stats import ReplicationState
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import ConsumeFromWhere
from rocketq.protocol.messages import BatchElement, encode_batch
from rocketq.replication.classic_frames import encode_header, encode_report
from rocketq.store import StoreConfig
from tests.contract.broker.kit import (
    connected,
    eventually,
    heartbeat,
    hold,
    letters,
    make_topic,
    over_loopback,
    props,
    pull,
    records,
    route,
    send,
    send_fields,
)
from tests.page_cache import drop_messages

SEGMENT = 64 << 10
SETTINGS = {
    "mappedFileSizeCommitLog": str(SEGMENT),
    "maxMessageSize": str(32 << 10),
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "0.99",
    "diskSpaceCleanForciblyRatio": "0.98",
    "brokerName": "broker-a",
    "haReconnectInterval": "100",
    "slaveTableSyncInterval": "200",
    "haTransferBatchSize": "5000",
}
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def make_broker(folder: Path, names: str, port: int = 0, **given: str) -> Broker:
    settings = {**SETTINGS, **given}
    config = BrokerConfig.from_java(settings, port=port, name_servers=names)
    return Broker(config, StoreConfig.from_java(settings, root=folder))


@asynccontextmanager
async def name_server(folder: Path) -> AsyncIterator[NameServer]:
    names = NameServer(NameServerConfig(port=0, kv_path=folder / "kv.json", config_path=folder / "ns.properties"))
    await names.start()
    try:
        yield names
    finally:
        await names.stop(drain_ms=100)


@asynccontextmanager
async def running(*brokers: Broker) -> AsyncIterator[None]:
    started = []
    try:
        for broker in brokers:
            await broker.start()
            started.append(broker)
        yield
    finally:
        for broker in reversed(started):
            await broker.stop(drain_ms=100)


@asynccontextmanager
async def pair(
    folder: Path, slave: dict[str, str] | None = None, **master: str
) -> AsyncIterator[tuple[Broker, Broker]]:
    """A master and its slave that found each other through a NameServer."""
    async with name_server(folder) as names:
        one = make_broker(folder / "master", names.addr, **master)
        two = make_broker(folder / "slave", names.addr, **SLAVE, **(slave or {}))
        async with running(one, two):
            await follows(one, two)
            yield one, two


async def follows(master: Broker, *slaves: Broker, within_s: float = 20) -> None:
    async def look() -> bool:
        acked = [link.confirmed_to for link in master.parts.ha.replication.state().replicas]
        return len(acked) >= len(slaves) and all(end == master.parts.store.log_end for end in acked)

    await eventually(look, within_s)


def log_bytes(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "commitlog").iterdir())}


def queue_bytes(folder: Path) -> dict[str, bytes]:
    root = folder / "consumequeue"
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("0*")) if path.is_file()}


async def fill(broker: Broker, topic: str, count: int, size: int = 900) -> None:
    async with connected(broker.addr) as (peer,):
        answers = [
            peer.start(
                RequestCode.SEND_MESSAGE_V2,
                letters(send_fields(topic, number % 4, properties=props(KEYS=f"k{number}", TAGS="t"))),
                (b"%06d" % number) * (size // 6),
            )
            for number in range(count)
        ]
        for answer in await asyncio.gather(*answers):
            assert answer.code == 0, answer


@over_loopback
async def test_slave_copies_from_empty_across_files_with_batches_at_their_ends(tmp_path: Path) -> None:
    """Goal: log and queues of the slave are the master's, however files, blanks, batches and frames fall."""
    async with name_server(tmp_path) as names:
        master = make_broker(tmp_path / "master", names.addr)
        slave = make_broker(tmp_path / "slave", names.addr, **SLAVE)
        async with running(master):
            await fill(master, "Copied", 300)
            async with connected(master.addr) as (peer,):
                batch = encode_batch([BatchElement(body=b"x" * 700, properties=b"K\x01v\x02")] * 20)
                for _ in range(12):
                    fields = letters(send_fields("Copied", batch="true"))
                    assert (await peer.ask(RequestCode.SEND_BATCH_MESSAGE, fields, batch)).code == 0
            async with running(slave):
                await follows(master, slave)
                await fill(master, "Copied", 200)
                await follows(master, slave)
                assert slave.parts.store.log_start == 0
                assert len(list(slave.parts.store.log.files)) > 5
                found = slave.parts.store.query("Copied", "k7")
                assert len(found.records) == 2
    assert log_bytes(tmp_path / "slave") == log_bytes(tmp_path / "master")
    assert queue_bytes(tmp_path / "slave") == queue_bytes(tmp_path / "master")


@over_loopback
async def test_slave_that_was_away_goes_on_where_it_was(tmp_path: Path) -> None:
    """Goal: stopped and started again, it asks for what it lacks and nothing else."""
    async with name_server(tmp_path) as names:
        master = make_broker(tmp_path / "master", names.addr)
        async with running(master):
            await fill(master, "Away", 50)
            for _ in range(3):
                slave = make_broker(tmp_path / "slave", names.addr, **SLAVE)
                async with running(slave):
                    await follows(master, slave)
                await fill(master, "Away", 70)
            slave = make_broker(tmp_path / "slave", names.addr, **SLAVE)
            async with running(slave):
                await follows(master, slave)
    assert log_bytes(tmp_path / "slave") == log_bytes(tmp_path / "master")


@over_loopback
async def test_slave_serves_reads_wakes_held_pulls_and_refuses_writes(tmp_path: Path) -> None:
    """Goal: readers are as well off as at the master; nothing changes at a slave but what its master says."""
    async with pair(tmp_path) as (master, slave), connected(master.addr, slave.addr) as (one, two):
        await make_topic(one, "Served", 1)

        async def is_known() -> bool:
            return "Served" in slave.parts.topics.table

        await eventually(is_known)
        held = hold(two, "Served")
        await asyncio.sleep(0.1)
        assert not held.done()
        assert (await send(one, "Served", b"first")).code == 0
        answer = await asyncio.wait_for(held, 3)
        assert [record.body for record in records(answer)] == [b"first"]
        assert answer.ext_fields["suggestWhichBrokerId"] == "0"

        refused = await send(two, "Served")
        assert (refused.code, "slave" in (refused.remark or "")) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
        assert (await send(two, "NeverMade")).code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "NeverMade" not in slave.parts.topics.table
        ended = await two.ask(
            RequestCode.END_TRANSACTION,
            {
                "producerGroup": "p",
                "tranStateTableOffset": 0,
                "commitLogOffset": 0,
                "commitOrRollback": 8,
                "fromTransactionCheck": "false",
                "msgId": "x",
            },
        )
        assert ended.code == ResponseCode.SLAVE_NOT_AVAILABLE
        version = slave.parts.groups.table.data_version
        await heartbeat(two, "c1", "newcomers", topic="Served")
        assert [record.body for record in records(await pull(two, "Served", group="others"))] == [b"first"]
        assert slave.parts.groups.table.data_version == version
        assert slave.parts.store.log_end == master.parts.store.log_end


@over_loopback
async def test_readers_far_behind_are_sent_to_the_slave(tmp_path: Path) -> None:
    """Goal: slaveReadEnable; whoever reads what is no longer in memory is told id 1, and our consumer goes there."""
    far = {"slaveReadEnable": "true", "accessMessageInMemoryMaxRatio": "0"}
    async with name_server(tmp_path) as names:
        master = make_broker(tmp_path / "master", names.addr, **far)
        slave = make_broker(tmp_path / "slave", names.addr, **SLAVE, slaveReadEnable="true")
        async with running(master, slave), connected(master.addr) as (one,):
            await make_topic(one, "Far", 1)
            for number in range(60):
                await send(one, "Far", b"%d" % number)
            await follows(master, slave)
            drop_messages(master)
            answer = await pull(one, "Far", 0)
            assert (answer.code, answer.ext_fields["suggestWhichBrokerId"]) == (0, "1")

            async def is_known() -> bool:
                return "Far" in slave.parts.topics.table

            await eventually(is_known)
            drop_messages(master)
            seen: list[bytes] = []

            async def take(messages: Any, context: Any) -> None:
                seen.extend(message.body for message in messages)

            config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, pull_batch_max=32)  # two pulls
            async with AsyncPushConsumer("FarReaders", take, name_servers=names.addr, config=config) as consumer:
                consumer.subscribe("Far")

                async def has_all() -> bool:
                    return len(set(seen)) == 60

                await eventually(has_all, 30)
            assert slave.parts.stats.broker_stats.totals.now.found > 0


@over_loopback
async def test_bad_offsets_and_commits_of_pulls_are_left_to_the_master(tmp_path: Path) -> None:
    """Goal: a slave that is behind does not move readers, and takes no commit that comes with a pull."""
    async with pair(tmp_path) as (master, slave), connected(master.addr, slave.addr) as (one, two):
        await make_topic(one, "Bad", 1)
        for body in (b"1", b"2", b"3"):
            await send(one, "Bad", body)
        await follows(master, slave)

        async def is_known() -> bool:
            return "Bad" in slave.parts.topics.table

        await eventually(is_known)
        answer = await pull(two, "Bad", 77)
        assert (answer.code, answer.ext_fields["nextBeginOffset"]) == (ResponseCode.PULL_RETRY_IMMEDIATELY, "77")
        await pull(two, "Bad", 0, group="g", sysFlag=5, commitOffset=2)
        await pull(two, "Bad", 77, group="g", sysFlag=5, commitOffset=2)
        assert slave.parts.groups.offsets.get("g", "Bad", 0) is None
        fields = {"consumerGroup": "g", "topic": "Bad", "queueId": 0, "commitOffset": 1}
        assert (await two.ask(RequestCode.UPDATE_CONSUMER_OFFSET, fields)).code == 0
        assert slave.parts.groups.offsets.get("g", "Bad", 0) == 1
        assert slave.parts.store.log_end == master.parts.store.log_end


@over_loopback
async def test_tables_follow_the_master(tmp_path: Path) -> None:
    """Goal: topics made and deleted, groups, offsets and delay offsets are the master's within a turn, and on disk."""
    async with pair(tmp_path) as (master, slave), connected(master.addr) as (one,):
        await make_topic(one, "Made", 3)
        await heartbeat(one, "c1", "readers", topic="Made")
        master.parts.groups.offsets.commit("readers", "Made", 2, 17)
        await send(one, "Made", properties=props(DELAY="1"))

        async def is_copied() -> bool:
            made = slave.parts.topics.table.get("Made")
            return (
                made is not None
                and made.read_queue_count == 3
                and slave.parts.groups.table.get("readers") is not None
                and slave.parts.groups.offsets.get("readers", "Made", 2) == 17
                and slave.parts.files.delay_offsets.load().offsets.get(1) == 1
                and slave.parts.topics.table.data_version == master.parts.topics.table.data_version
            )

        await eventually(is_copied)
        assert (await one.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Made"})).code == 0

        async def is_gone() -> bool:
            return slave.parts.topics.table.get("Made") is None

        await eventually(is_gone)
        assert slave.parts.store.max_offset("SCHEDULE_TOPIC_XXXX", 0) == 1
    saved = json.loads((tmp_path / "slave" / "config" / "consumerOffset.json").read_text())
    assert saved["offsetTable"]["Made@readers"] == {"2": 17}


@over_loopback
async def test_delayed_message_is_delivered_by_whoever_is_master(tmp_path: Path) -> None:
    """Goal: a slave delivers nothing; made master by hand it goes on where its master was, and loses nothing."""
    async with name_server(tmp_path) as names:
        master = make_broker(tmp_path / "master", names.addr)
        slave = make_broker(tmp_path / "slave", names.addr, **SLAVE)
        async with running(slave), running(master), connected(master.addr) as (one,):
            await make_topic(one, "Later", 1)
            await send(one, "Later", b"soon", properties=props(DELAY="1"))
            await send(one, "Later", b"late", properties=props(DELAY="2"))
            await send(one, "Later", b"timed", properties=props(TIMER_DELAY_MS="6000"))

            async def is_delivered() -> bool:
                return slave.parts.store.max_offset("Later", 0) == 1

            await eventually(is_delivered)
            await follows(master, slave)
            await asyncio.sleep(0.5)
        promoted = make_broker(tmp_path / "slave", names.addr)
        async with running(promoted), connected(promoted.addr) as (one,):

            async def has_come() -> bool:
                return promoted.parts.store.max_offset("Later", 0) >= 3

            await eventually(has_come, 30)
            await asyncio.sleep(1)
            bodies = [record.body for record in records(await pull(one, "Later"))]
            assert (bodies[0], sorted(bodies[1:])) == (b"soon", [b"late", b"timed"])


@over_loopback
async def test_routes_know_slaves_and_readers_go_on_without_the_master(tmp_path: Path) -> None:
    """Goal: the slave's id is in the route, its master's too until that is gone; our consumer then reads on from it."""
    async with name_server(tmp_path) as names:
        master = make_broker(tmp_path / "master", names.addr)
        slave = make_broker(tmp_path / "slave", names.addr, **SLAVE)
        async with running(slave):
            async with running(master):
                await follows(master, slave)
                async with AsyncProducer("P", name_servers=names.addr) as producer:
                    for number in range(40):
                        await producer.send(Message(topic="Read", body=b"%d" % number))
                await follows(master, slave)

                async def is_known() -> bool:
                    return "Read" in slave.parts.topics.table

                await eventually(is_known)
                async with connected(names.addr) as (peer,):
                    found = await route(peer, "Read")
                    assert found is not None
                    assert found.brokers[0].addrs == {0: master.addr, 1: slave.addr}
            async with connected(names.addr) as (peer,):
                found = await route(peer, "Read")
                assert found is not None
                assert found.brokers[0].addrs == {1: slave.addr}
            seen: set[bytes] = set()

            async def take(messages: Any, context: Any) -> None:
                seen.update(message.body for message in messages)

            config = PushConfig(from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
            async with AsyncPushConsumer("Readers", take, name_servers=names.addr, config=config) as consumer:
                consumer.subscribe("Read")

                async def has_all() -> bool:
                    return len(seen) == 40

                await eventually(has_all, 30)


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@over_loopback
async def test_sync_master_tells_whether_a_slave_has_it(tmp_path: Path, flush: str) -> None:
    """Goal: 0 with a slave, 11 without, 12 when it does not answer in time; WAIT=false never waits; all is stored."""
    given = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "300", "flushDiskType": flush}
    async with name_server(tmp_path) as names:
        master = make_broker(tmp_path / "master", names.addr, **given)
        slave = make_broker(tmp_path / "slave", names.addr, **SLAVE)
        async with running(master), connected(master.addr) as (one,):
            await make_topic(one, "Sure", 1)
            for body in (b"alone", b"alone still"):  # by the handler, which makes the queue, and by the kernel
                assert (await send(one, "Sure", body)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert (await send(one, "Sure", b"careless", properties=props(WAIT="false"))).code == 0
            delayed = await send(one, "Sure", b"cold", properties=props(DELAY="1"))
            assert delayed.code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert delayed.ext_fields["msgId"]
            async with running(slave):
                await follows(master, slave)
                for number in range(20):
                    answer = await send(one, "Sure", b"both %d" % number, properties=props(DELAY=str(number % 2)))
                    assert answer.code == 0, answer
                    assert slave.parts.store.log_end > int(answer.ext_fields["msgId"][16:], 16)
            port = master.config.ha_port
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(encode_report(master.parts.store.log_end))

            async def is_heard() -> bool:
                return len(master.parts.ha.replication.state().replicas) == 1

            await eventually(is_heard)
            for text in (props(), props(DELAY="1")):
                answer = await send(one, "Sure", b"unheard", properties=text)
                assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT
                assert answer.ext_fields["queueOffset"]
            writer.write(encode_report(master.parts.store.log_end))
            waiting = asyncio.ensure_future(send(one, "Sure", b"at last"))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            writer.write(encode_report(master.parts.store.log_end))
            assert (await waiting).code == 0
            writer.close()
            stored = [record.body for record in records(await pull(one, "Sure"))]
            assert stored[:3] == [b"alone", b"alone still", b"careless"]
            assert {b"unheard", b"at last"} < set(stored)
            del reader


@over_loopback
async def test_slave_too_far_behind_does_not_count(tmp_path: Path) -> None:
    """Goal: haSlaveFallbehindMax; sends are answered 11 at once and not after a timeout."""
    given = {"brokerRole": "SYNC_MASTER", "slaveTimeout": "20000", "haSlaveFallbehindMax": "3000"}
    async with name_server(tmp_path) as names:
        master = make_broker(tmp_path / "master", names.addr, **given)
        async with running(master), connected(master.addr) as (one,):
            await make_topic(one, "Behind", 1)
            reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_port)
            writer.write(encode_report(0))
            await reader.readexactly(0)

            async def is_heard() -> bool:
                return len(master.parts.ha.replication.state().replicas) == 1

            await eventually(is_heard)
            waiting = asyncio.ensure_future(send(one, "Behind", b"x" * 1_500))
            await asyncio.sleep(0.1)
            assert (await send(one, "Behind", b"y" * 1_500)).code == ResponseCode.SLAVE_NOT_AVAILABLE
            assert not waiting.done()
            writer.write(encode_report(master.parts.store.log_end))
            assert (await waiting).code == 0
            writer.close()


@over_loopback
async def test_garbage_and_impossible_slaves_at_the_port_hurt_nobody(tmp_path: Path) -> None:
    """Goal: whoever talks nonsense, or is ahead of the log, is let go; a real slave goes on meanwhile."""
    async with pair(tmp_path) as (master, slave):
        for words in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 8, encode_report(1 << 40), os.urandom(1 << 16)):
            reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_port)
            writer.write(words)
            with_end = await asyncio.wait_for(_until_closed(reader), 5)
            assert with_end == b"" or len(words) > 1_000
            writer.close()
        await fill(master, "Through", 20)
        await follows(master, slave)


async def _until_closed(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(-1)
    except ConnectionError:
        return b""


class ScriptedMaster:
    """Speaks to a slave in whatever pieces a test likes."""

    def __init__(self) -> None:
        self.reports: list[int] = []
        self.connections = 0
        self.writer: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writer = writer
        try:
            while True:
                self.reports.append(struct.unpack(">q", await reader.readexactly(8))[0])
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def heard(self, report: int) -> None:
        async def look() -> bool:
            return report in self.reports

        await eventually(look)

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        if self.writer is not None:
            self.writer.close()


@over_loopback
async def test_slave_takes_frames_byte_by_byte_and_writes_nothing_at_a_wrong_place(tmp_path: Path) -> None:
    """Goal: frames in single bytes make the same log; a gap, a step back or garbage ends the connection and no more."""
    source = make_broker(tmp_path / "source", "")
    async with running(source):
        await fill(source, "Split", 8, 120)
        stream = bytes(source.parts.store.raw_range(0, SEGMENT))
    master = ScriptedMaster()
    slave = make_broker(tmp_path / "slave", "", **SLAVE, haMasterAddress=await master.start())
    async with running(slave):
        await master.heard(0)
        half = len(stream) // 2
        assert master.writer is not None
        for byte in encode_header(0, half) + stream[:half]:
            master.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        at = 0
        while at + (size := int.from_bytes(stream[at : at + 4], "big")) <= half:
            at += size
        await master.heard(at)
        for wrong in (
            encode_header(at + 8, 8) + bytes(8),
            encode_header(0, half) + stream[:half],
            encode_header(at, 100) + b"\xab" * 100,
            encode_header(-5, 100),
            encode_header(at, SEGMENT + 1),
        ):
            before, counted = len(master.reports), master.connections

            async def is_back(counted: int = counted) -> bool:
                return master.connections > counted

            master.writer.write(wrong)
            await eventually(is_back)

            async def has_reported(before: int = before) -> bool:
                return len(master.reports) > before

            await eventually(has_reported)
            assert set(master.reports[before:]) == {at}
            assert slave.parts.store.log_end == at
        master.writer.write(encode_header(at, len(stream) - at) + stream[at:])
        await master.heard(len(stream))
    master.stop()
    assert log_bytes(tmp_path / "slave") == log_bytes(tmp_path / "source")


@over_loopback
async def test_silent_master_is_given_up_and_heartbeats_keep_both_together(tmp_path: Path) -> None:
    """Goal: heartbeats both ways while idle; without them a connection is made anew."""
    quick = {"haSendHeartbeatInterval": "50", "haHousekeepingInterval": "400"}
    silent = ScriptedMaster()
    slave = make_broker(tmp_path / "one", "", **SLAVE, **quick, haMasterAddress=await silent.start())
    async with running(slave):

        async def came_again() -> bool:
            return silent.connections >= 3

        await eventually(came_again)
        assert len(silent.reports) > silent.connections
    silent.stop()
    quick = {"haSendHeartbeatInterval": "100", "haHousekeepingInterval": "3000"}
    async with pair(tmp_path, slave=quick, **quick) as (master, slave):
        connection = slave.parts.ha.replication._follower.connection  # type: ignore[attr-defined]
        await asyncio.sleep(4)
        assert slave.parts.ha.replication._follower.connection is connection  # type: ignore[attr-defined]
        assert master.parts.ha.replication.state().in_sync_count == 1


@over_loopback
async def test_slave_ahead_of_its_master_follows_no_further(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: a master that lost its log is not followed over what the slave still has."""
    async with pair(tmp_path) as (master, _):
        await fill(master, "Lost", 20)
        await follows(master, master)
    async with name_server(tmp_path) as names:
        fresh = make_broker(tmp_path / "fresh", names.addr)
        slave = make_broker(tmp_path / "slave", names.addr, **SLAVE)
        async with running(fresh, slave):

            async def is_told() -> bool:
                return "copy one store" in caplog.text

            await eventually(is_told)
            end = slave.parts.store.log_end
            await fill(fresh, "Other", 3)
            await asyncio.sleep(0.5)
            assert slave.parts.store.log_end == end


@over_loopback
async def test_slow_slave_holds_up_nobody_and_memory_stays_small(tmp_path: Path) -> None:
    """Goal: a slave that does not read is sent no more than fits in buffers; the master and its other slave go on."""
    async with pair(tmp_path) as (master, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", master.config.ha_port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(encode_report(0))
        for _ in range(6):
            await fill(master, "Slow", 400, 3_000)

        async def is_level() -> bool:
            links = master.parts.ha.replication.state().replicas
            return any(link.confirmed_to == master.parts.store.log_end for link in links)

        await eventually(is_level, 30)
        slow = [link for link in master.parts.ha.replication.state().replicas if link.confirmed_to == 0]
        assert len(slow) == 1
        assert slow[0].sent_to < master.parts.store.log_end
        writer.close()
        del reader


@over_loopback
async def test_state_is_told_as_apaches_tools_read_it(tmp_path: Path) -> None:
    """Goal: request 907 at both: who is who, where, and how far."""
    async with pair(tmp_path) as (master, slave), connected(master.addr, slave.addr) as (one, two):
        await fill(master, "State", 5)
        await follows(master, slave)
        told = ReplicationState.decode((await one.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (told.is_master, told.in_sync_count, told.log_end) == (True, 1, master.parts.store.log_end)
        assert (told.replicas[0].confirmed_to, told.replicas[0].behind_bytes) == (told.log_end, 0)
        told = ReplicationState.decode((await two.ask(RequestCode.GET_BROKER_HA_STATUS)).body)
        assert (told.is_master, told.master.active, told.master.log_end) == (False, True, master.parts.store.log_end)
        assert told.master.addr == f"127.0.0.1:{master.config.ha_port}"


def test_settings_that_do_not_fit_together_stop_the_start(tmp_path: Path) -> None:
    """Goal: one line that says what to change."""
    for settings, words in (
        ({"brokerRole": "SLAVE"}, "brokerId"),
        ({"brokerId": "1"}, "brokerRole=SLAVE"),
        ({"brokerRole": "BOSS"}, "ASYNC_MASTER or SYNC_MASTER or SLAVE"),
        ({"enableDLegerCommitLog": "true"}, "haProtocol=fenced"),
    ):
        with pytest.raises(ConfigError, match=words):
            BrokerConfig.from_java(settings)
    (tmp_path / "dledger-n0").mkdir()
    with pytest.raises(StoreError, match="haProtocol=fenced"):
        asyncio.run(make_broker(tmp_path, "").start())


class Process:
    """A broker in a process of its own, to be killed."""

    def __init__(self, folder: Path, names: str, port: str = "0", **given: str) -> None:
        folder.mkdir(exist_ok=True)
        ready = folder / "ready.json"
        ready.unlink(missing_ok=True)
        settings = {**SETTINGS, **given}
        changes = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        command = [sys.executable, "-m", "rocketq", "broker", "-n", names, "--port", port, "--data-dir", str(folder)]
        with (folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *changes, "--ready-file", str(ready)], stdout=log, stderr=log)
        self._ready = ready
        self.folder = folder

    async def ready(self) -> str:
        async def look() -> bool:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            return self._ready.exists()

        await eventually(look, 30)
        addr: str = json.loads(self._ready.read_text())["addresses"]["broker-a"]
        return addr

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self.signal(signal.SIGTERM)
        self._process.wait(20)


@over_loopback
async def test_kills_of_slave_and_master_lose_nothing_that_was_answered(tmp_path: Path) -> None:
    """Goal: the slave is paused, killed and comes back, the master is killed: all is read from the slave."""
    async with name_server(tmp_path) as names:
        master = Process(tmp_path / "master", names.addr, brokerRole="SYNC_MASTER", slaveTimeout="2000")
        slave = Process(tmp_path / "slave", names.addr, **SLAVE)
        sure: list[bytes] = []
        try:
            addr, slave_addr = await master.ready(), await slave.ready()
            async with connected(addr) as (one,):
                await make_topic(one, "Killed", 1)
                number = 0

                async def send_until(enough: Callable[[], bool]) -> None:
                    nonlocal number
                    async with asyncio.timeout(60):
                        while not enough():
                            body = b"%d" % number
                            number += 1
                            if (await send(one, "Killed", body, properties=props())).code == 0:
                                sure.append(body)

                await send_until(lambda: len(sure) >= 100)
                slave.signal(signal.SIGSTOP)
                assert (await send(one, "Killed", b"paused", properties=props())).code == 12
                slave.signal(signal.SIGCONT)
                await send_until(lambda: len(sure) >= 150)
                slave.kill()
                await send(one, "Killed", b"alone", properties=props())
                slave = Process(tmp_path / "slave", names.addr, slave_addr.rpartition(":")[2], **SLAVE)
                before = len(sure)
                await send_until(lambda: len(sure) >= before + 100)
            master.kill()
            slave_addr = await slave.ready()
            async with connected(slave_addr) as (two,):
                seen: list[bytes] = []

                async def has_all() -> bool:
                    answer = await pull(two, "Killed", len(seen))
                    if answer.code == 0:
                        seen.extend(record.body for record in records(answer))
                    return set(sure) <= set(seen)

                await eventually(has_all, 20)
        finally:
            master.kill()
            slave.stop()
    master_log, slave_log = (b"".join(log_bytes(tmp_path / name).values()) for name in ("master", "slave"))
    end = len(slave_log.rstrip(b"\0"))
    assert master_log[:end] == slave_log[:end]
