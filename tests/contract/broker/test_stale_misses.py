"""What a frame lacked is granted by the checks of that frame, and by no other's.

The guard rejects sends to one topic. The kernel reports what such a send lacks; when the send then goes the slow way
without being granted, nothing of that may be left for the next request, which the guard lets pass.
"""

from __future__ import annotations

from pathlib import Path

from rocketq.broker import Broker
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.frame import encode_command
from tests.contract.broker.kit import Peer, connected, letters, over_loopback, running_broker, send_fields
from tests.contract.broker.test_guards import SEND, Guard, codes_of, prepare, sends, stored

REJECTED = 16
TRIES = 100
"""How many frames of one read the broker tries to admit at once."""


def undecodable(peer: Peer, topic: str) -> bytes:
    """A plain send, except that an escape in its properties is half a character."""
    frame = encode_command(peer.request(SEND, letters(send_fields(topic, properties="a\x01HALF")), b"body"))
    header_end = 8 + int.from_bytes(frame[5:8], "big")
    header = frame[8:header_end].replace(b"HALF", b"\\ud800")
    rest = len(header).to_bytes(4, "big") + header + frame[header_end:]
    return len(rest).to_bytes(4, "big") + rest


async def assert_still_guarded(broker: Broker, peer: Peer, before: int) -> None:
    """After a request that the guard lets pass."""
    passed = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": "U", "queueId": 0})
    assert passed.code == 0
    assert await codes_of(peer, *sends(peer, "T", 5)) == [REJECTED] * 5
    assert stored(broker) == before


@over_loopback
async def test_an_undecodable_send_leaves_nothing_to_be_granted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T", "U")
        broker.guards.append(Guard(lambda request: request.ext_fields.get("b") == "T"))
        before = stored(broker)
        peer.write(undecodable(peer, "T"))
        await assert_still_guarded(broker, peer, before)


@over_loopback
async def test_a_send_behind_very_many_refused_ones_leaves_nothing_to_be_granted(tmp_path: Path) -> None:
    async with running_broker(tmp_path) as broker, connected(broker.addr) as (peer,):
        await prepare(peer, "T", "U")
        broker.guards.append(Guard(lambda request: request.ext_fields.get("b") == "T"))
        before = stored(broker)
        ungranted = [sends(peer, "U", 1, producerGroup=f"p{number}")[0] for number in range(TRIES - 1)]
        assert await codes_of(peer, *ungranted, *sends(peer, "T", 1)) == [0] * len(ungranted) + [REJECTED]
        await assert_still_guarded(broker, peer, before)
