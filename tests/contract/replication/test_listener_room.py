"""The port of classic replication has a connection limit; test_impostors.py covers the fenced one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketq.replication.classic_listener import ListenerRules, ReplicaListener
from rocketq.runtime.clock import SystemClock
from rocketq.store import Store, StoreConfig

from .groups import HANG_S, SEGMENT_BYTES, until

ROOM = 2


async def classic(store: Store) -> ReplicaListener:
    made = ReplicaListener(store, SystemClock(), ListenerRules, slaves_max=ROOM)
    await made.start("127.0.0.1", 0)
    return made


@asynccontextmanager
async def caller(port: int) -> AsyncIterator[asyncio.StreamReader]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader
    finally:
        writer.close()


async def is_turned_away(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b""
    except ConnectionResetError:
        return True


def test_connections_above_the_limit_are_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Goal: told once in the log; those that are there stay, and a place that is free again is given away."""

    async def work(store: Store) -> None:
        listener = await classic(store)
        async with caller(listener.port):
            async with caller(listener.port):
                await until(lambda: len(listener.links) == ROOM, lambda: "two are there")
                for _ in range(3):
                    async with caller(listener.port) as late:
                        assert await is_turned_away(late)
                assert len(listener.links) == ROOM
            await until(lambda: len(listener.links) == 1, lambda: "one is gone")
            async with caller(listener.port):
                await until(lambda: len(listener.links) == ROOM, lambda: "its place is taken")
        await until(lambda: not listener.links, lambda: "all are gone")
        await listener.stop()

    async def limited(store: Store) -> None:
        async with asyncio.timeout(HANG_S):
            await work(store)

    with Store.open(StoreConfig(root=tmp_path, segment_bytes=SEGMENT_BYTES, message_bytes_max=16 << 10)) as store:
        asyncio.run(limited(store))
    assert caplog.text.count("limit of connections of slaves reached (2): dropping new ones") == 1
