"""Extensions of queue entries, with bitmaps of conditions: Apache's brokers and ours take turns on one directory."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path
from struct import iter_unpack

import pytest

from rocketq.filter import BloomGeometry, compile_sql
from rocketq.protocol.bodies.clients import ConsumerData, Heartbeat, Subscription
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.properties import encode_properties
from rocketq.store import tag_code
from rocketq.store.disk import Disk
from rocketq.store.queue_extensions import Extension, QueueExtensions, decode_extension, is_address, position_of
from rocketq.store.verify import Verifier
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import Peer, connected, eventually, make_topic, props, pull, records, send

from .apache import SMALL_FILES, ApacheBroker, ApacheNameServer, free_broker_port

pytestmark = pytest.mark.interop

TOPIC = "Bitmaps"
FILE_BYTES = 600
SETTINGS = {
    "enablePropertyFilter": "true",
    "enableConsumeQueueExt": "true",
    "enableCalcFilterBitMap": "true",
    "mappedFileSizeConsumeQueueExt": str(FILE_BYTES),
}
OURS = {**SMALL_FILES, **SETTINGS, "maxMessageSize": str(1 << 20)}
GROUPS = {"some": "a > 5", "few": "a = 'abc'", "tagged": "TAGS = 'A' AND a IS NOT NULL"}
VALUES = ("1", "5", "7", "9", "abc", "6.5")
COUNT = 45

NameServers = Callable[[str], ApacheNameServer]
Sent = list[tuple[str, str]]  # tag and value, in the order of the queue


class Turns:
    """Who sent what, and what everybody must get for it."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self.sent: Sent = []

    async def play(self, addr: str, *, first: bool) -> None:
        """All that is there is delivered as it should be; more is sent; all of it is delivered again."""
        async with connected(addr) as (peer,):
            if first:
                await make_topic(peer, TOPIC, queues=1)
            await subscribe(peer)
            await asyncio.sleep(0.1)  # what comes in the millisecond of a condition is not judged by its bitmap
            await self._check(peer)
            for _ in range(COUNT):
                await self._send(peer)
            await eventually(lambda: self._is_dispatched(peer))
            await self._check(peer)

    async def _send(self, peer: Peer) -> None:
        tag, value = self._rng.choice("AB"), self._rng.choice(VALUES)
        body = f"{len(self.sent)}".encode()

        async def is_taken() -> bool:  # a topic that was just made is not there at once
            return (await send(peer, TOPIC, body, properties=props(TAGS=tag, a=value))).code == 0

        await eventually(is_taken)
        self.sent.append((tag, value))

    async def _is_dispatched(self, peer: Peer) -> bool:
        asked = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0})
        return int(asked.ext_fields["offset"]) == len(self.sent)

    async def _check(self, peer: Peer) -> None:
        for group, condition in GROUPS.items():
            program = compile_sql(condition)
            wanted = [n for n, one in enumerate(self.sent) if program.matches(properties_of(one))]
            given = {"group": group, "sysFlag": 0, "subscription": None, "expressionType": "SQL92", "subVersion": 1}
            assert await delivered(peer, **given) == wanted, group
        for tag in "AB":
            wanted = [n for n, one in enumerate(self.sent) if one[0] == tag]
            assert await delivered(peer, subscription=tag) == wanted

    def extensions(self, root: Path) -> list[Extension]:
        """What must stand beside each entry; store times are taken from what does."""
        found = extensions_in(root)
        assert len(found) == len(self.sent)
        geometry = BloomGeometry.of()
        wanted = []
        for one, (_, unit) in zip(self.sent, found, strict=True):
            met = [group for group, text in GROUPS.items() if compile_sql(text).matches(properties_of(one))]
            bitmap = geometry.bitmap(geometry.positions(group, TOPIC) for group in met)
            wanted.append(Extension(tag_code(one[0]), unit.store_ms, bitmap))
        return wanted


def properties_of(one: tuple[str, str]) -> bytes:
    return encode_properties({"TAGS": one[0], "a": one[1]})


async def subscribe(peer: Peer) -> None:
    consumers = tuple(
        ConsumerData(
            group=group,
            subscriptions=(Subscription(topic=TOPIC, expression=text, expression_type="SQL92", version=1),),
        )
        for group, text in GROUPS.items()
    )
    data = Heartbeat(client_id="c", consumers=consumers)
    assert (await peer.ask(RequestCode.HEART_BEAT, body=data.encode())).code == 0


async def delivered(peer: Peer, **given: object) -> list[int]:
    """Numbers of all messages that a group gets."""
    found: list[int] = []
    offset = 0
    while True:
        answer = await pull(peer, TOPIC, offset, **given)
        if answer.code == 0:
            found += [int(record.body) for record in records(answer)]
        elif answer.code != 20:
            return found
        offset = int(answer.ext_fields["nextBeginOffset"])


def extensions_in(root: Path) -> list[tuple[int, Extension]]:
    """Address and extension of every entry of the queue, by the bytes of the files."""
    files = sorted((root / "consumequeue_ext" / TOPIC / "0").iterdir())
    data = {int(path.name): path.read_bytes() for path in files}
    assert {len(each) for each in data.values()} == {FILE_BYTES}
    found = []
    for path in sorted((root / "consumequeue" / TOPIC / "0").iterdir()):
        for _, size, code in iter_unpack(">qiq", path.read_bytes()):
            if size <= 0:
                continue
            assert is_address(code)
            start = position_of(code) // FILE_BYTES * FILE_BYTES
            unit = decode_extension(data[start], position_of(code) - start)
            assert unit is not None
            found.append((code, unit))
    return found


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_directory_with_extensions_is_taken_in_turns(version: str, nameserver: NameServers, tmp_path: Path) -> None:
    """Goal: Apache, ours, Apache, ours: each reads what the other wrote and goes on behind it; every bitmap is what
    either would have written, and deliveries by conditions and by tags are right at every turn."""
    root, port, turns = tmp_path / "broker-0", free_broker_port(), Turns(seed=7)
    for turn in range(2):
        work = tmp_path / f"apache-{turn}"
        with ApacheBroker(nameserver(version), port=port, store=root, work=work, settings=SETTINGS) as apache:
            asyncio.run(turns.play(apache.address, first=turn == 0))
        assert [unit for _, unit in extensions_in(root)] == turns.extensions(root)
        with EmbeddedCluster(data_dir=tmp_path, settings=OURS) as ours:
            asyncio.run(turns.play(ours.broker_addr, first=False))
        assert [unit for _, unit in extensions_in(root)] == turns.extensions(root)
        assert Verifier(root).run().findings == []
    assert len(turns.sent) == 4 * COUNT
    assert_files_are_as_if_written_by_one(root, tmp_path / "again")


def assert_files_are_as_if_written_by_one(root: Path, folder: Path) -> None:
    """Units back to back, end marks, file names: the same bytes as ours for the same extensions."""
    files = QueueExtensions(folder / TOPIC / "0", FILE_BYTES, Disk())
    for address, unit in extensions_in(root):
        assert files.put(unit) == address
    theirs = root / "consumequeue_ext" / TOPIC / "0"
    assert {path.name: path.read_bytes() for path in theirs.iterdir()} == {
        path.name: path.read_bytes() for path in (folder / TOPIC / "0").iterdir()
    }


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_a_killed_apache_leaves_extensions_that_we_can_use(
    version: str, nameserver: NameServers, tmp_path: Path
) -> None:
    """Goal: nothing is lost or ruled out wrongly, with our option on or off, and Apache goes on afterwards."""
    root, port, turns = tmp_path / "broker-0", free_broker_port(), Turns(seed=8)
    with ApacheBroker(nameserver(version), port=port, store=root, work=tmp_path / "a", settings=SETTINGS) as apache:
        asyncio.run(turns.play(apache.address, first=True))
        apache.kill()
    for settings in (OURS, {**OURS, "enableConsumeQueueExt": "false"}):
        with EmbeddedCluster(data_dir=tmp_path, settings=settings) as ours:
            asyncio.run(turns.play(ours.broker_addr, first=False))
        assert Verifier(root).run().findings == []
    with ApacheBroker(nameserver(version), port=port, store=root, work=tmp_path / "b", settings=SETTINGS) as apache:
        asyncio.run(turns.play(apache.address, first=False))


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_tools_are_shown_the_same_extensions(version: str, nameserver: NameServers, tmp_path: Path) -> None:
    """Goal: request 321 about entries with extensions has the same members and texts; the tags code is the one inside,
    as 5.x shows it (4.x shows the address)."""
    root, port, turns = tmp_path / "broker-0", free_broker_port(), Turns(seed=9)
    with ApacheBroker(nameserver(version), port=port, store=root, work=tmp_path / "a", settings=SETTINGS) as apache:
        asyncio.run(turns.play(apache.address, first=True))
        theirs = asyncio.run(shown(apache.address))
    with EmbeddedCluster(data_dir=tmp_path, settings=OURS) as ours:
        assert asyncio.run(shown(ours.broker_addr)) == theirs
    assert len(theirs) == COUNT


async def shown(addr: str) -> list[dict[str, object]]:
    async with connected(addr) as (peer,):
        await subscribe(peer)
        asked = {"topic": TOPIC, "queueId": 0, "index": 0, "count": COUNT, "consumerGroup": "some"}
        answer = await peer.ask(RequestCode.QUERY_CONSUME_QUEUE, asked)
        entries = json.loads(answer.body)["queueData"]
        found = []
        for entry in entries:
            inside = json.loads(entry["extendDataJson"])
            address_shown = is_address(entry["tagsCode"])
            found.append(
                entry | {"extendDataJson": inside} | ({"tagsCode": inside["tagsCode"]} if address_shown else {})
            )
        return found
