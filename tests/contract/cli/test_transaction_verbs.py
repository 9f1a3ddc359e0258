"""`rocketq transaction` against a running cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from rocketq.testing.embedded import EmbeddedCluster
from tests.contract.broker.kit import connected, make_topic, props, send
from tests.contract.broker.test_transactions import COMMIT, ROLLBACK, end

from .conftest import call


def test_undecided_halves_are_listed(make_rocketq_cluster: Callable[..., EmbeddedCluster]) -> None:
    """Goal: those and no others, once each, also after they were asked about; none where there were never any."""
    settings = {"transactionTimeOut": "0", "transactionCheckInterval": "200"}
    cluster = make_rocketq_cluster(settings=settings)
    empty = call(cluster.name_server_addr, "transaction", "list")
    assert (empty.code, empty.out) == (0, "none\n")
    born_ms = int(time.time() * 1000)

    async def play() -> None:
        async with connected(cluster.broker_addr) as (peer,):
            await make_topic(peer, "T", queues=2)
            for number, state in enumerate((COMMIT, None, ROLLBACK, None)):
                named = props(TRAN_MSG="true", PGROUP=f"pg{number % 3}", UNIQ_KEY=f"U{number}")
                fields = {"producerGroup": "pg", "sysFlag": 4, "properties": named, "bornTimestamp": born_ms}
                half = await send(peer, "T", b"12345", 1, **fields)
                if state is not None:
                    assert (await end(peer, half, state, group=f"pg{number % 3}")).code == 0

    asyncio.run(play())
    deadline = time.monotonic() + 20
    while True:
        listed = call(cluster.name_server_addr, "transaction", "list", "--json")
        assert listed.code == 0, listed
        listed_keys = sorted(one["message_id"] for one in listed.json)
        assert listed_keys in ([], ["U1", "U3"])  # none while the NameServer does not know the topic
        if listed_keys and all(one["checks"] >= 2 for one in listed.json):
            break
        assert time.monotonic() < deadline
    half = next(one for one in listed.json if one["message_id"] == "U1")
    assert {name: half[name] for name in ("broker", "topic", "queue_id", "group", "born_ms", "body_bytes")} == {
        "broker": "broker-0",
        "topic": "T",
        "queue_id": 1,
        "group": "pg1",
        "born_ms": born_ms,
        "body_bytes": 5,
    }
    shown = call(cluster.name_server_addr, "transaction", "list", "--group", "pg0").out
    assert ("U3" in shown, "U1" in shown) == (True, False)
    assert call(cluster.name_server_addr, "transaction", "list", "--topic", "other").out == "none\n"
