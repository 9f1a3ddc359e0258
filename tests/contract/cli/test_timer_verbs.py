"""`rocketq timer` and `rocketq group set --strict` against a running cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rocketq.testing.embedded import EmbeddedCluster
from tests.contract.broker.kit import connected, heartbeat, make_topic, props, send

from .conftest import call


def test_waiting_messages_are_listed_and_taken_back(make_rocketq_cluster: Callable[..., EmbeddedCluster]) -> None:
    """Goal: those and no others, the next one first; one that was taken back is gone, and said to be so."""
    cluster = make_rocketq_cluster()
    empty = call(cluster.name_server_addr, "timer", "list")
    assert (empty.code, empty.out) == (0, "none\n")

    async def play() -> None:
        async with connected(cluster.broker_addr) as (peer,):
            await make_topic(peer, "T", queues=2)
            for key, seconds in (("U2", "500"), ("U1", "400"), ("U0", "-1")):
                named = props(UNIQ_KEY=key, TIMER_DELAY_SEC=seconds)
                assert (await send(peer, "T", b"12345", 1, properties=named)).code == 0

    asyncio.run(play())
    listed = call(cluster.name_server_addr, "timer", "list", "--json").json
    assert [(one["message_id"], one["topic"], one["queue_id"], one["body_bytes"]) for one in listed] == [
        ("U1", "T", 1, 5),
        ("U2", "T", 1, 5),
    ]
    assert 398_000 < listed[0]["due_ms"] - time.time() * 1000 < 402_000
    done = call(cluster.name_server_addr, "timer", "cancel", listed[0]["handle"], "--json")
    assert done.json == {"topic": "T", "message_id": "U1", "broker": "broker-0"}
    left = call(cluster.name_server_addr, "timer", "list", "--topic", "T", "--json").json
    assert [one["message_id"] for one in left] == ["U2"]
    assert " U2 " in call(cluster.name_server_addr, "timer", "list", "--topic", "T").out
    assert call(cluster.name_server_addr, "timer", "list", "--topic", "other").out == "none\n"
    wrong = call(cluster.name_server_addr, "timer", "cancel", "nonsense")
    assert (wrong.code, "handle" in wrong.err) == (1, True)


def test_a_strict_group_and_its_conflicts_are_shown(make_rocketq_cluster: Callable[..., EmbeddedCluster]) -> None:
    cluster = make_rocketq_cluster()

    async def play() -> None:
        async with connected(*[cluster.broker_addr] * 2) as (first, second):
            await make_topic(first, "T")
            await heartbeat(first, "a", "g", topic="T", expression="x")
            await heartbeat(second, "b", "g", topic="T", expression="y")
            status = await asyncio.to_thread(call, cluster.name_server_addr, "group", "status", "g", "--json")
            assert status.json["conflicts"] == {"T": ["x", "y"]}
            shown = await asyncio.to_thread(call, cluster.name_server_addr, "group", "status", "g")
            assert "CONFLICT in T" in shown.out
            assert "x against y" in shown.out

    asyncio.run(play())
    assert call(cluster.name_server_addr, "group", "set", "g", "--strict").code == 0
    assert cluster.brokers[0].parts.groups.table.get("g").is_strict  # type: ignore[union-attr]
    assert call(cluster.name_server_addr, "group", "set", "g", "--retry-max", "3").code == 0
    assert cluster.brokers[0].parts.groups.table.get("g").is_strict  # type: ignore[union-attr]
