"""Count the source files of the client that one delivery with its send enters: `python tools/delivery_files.py`.

A producer sends one message to an embedded cluster, a push consumer gets it. Functions count that run between the call
of send() and the call of the listener, in files under rocketq/client.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import rocketq
from rocketq import AsyncProducer, AsyncPushConsumer, Message
from rocketq.testing.embedded import EmbeddedCluster

AIM = 15
PACKAGE = str(Path(rocketq.__file__).parent / "client")


async def traced(addr: str) -> set[str]:
    codes: set[CodeType] = set()
    received = asyncio.Queue[bytes]()

    async def listener(messages: Any, context: Any) -> None:
        for message in messages:
            received.put_nowait(message.body)

    def profile(frame: FrameType, event: str, arg: object) -> None:
        codes.add(frame.f_code)

    async with (
        AsyncProducer("trace-producer", name_servers=addr) as producer,
        AsyncPushConsumer("trace-consumer", listener, topics="Traced", start="earliest", name_servers=addr),
    ):
        await producer.send(Message("Traced", b"first"))  # creates the topic; routes and pulls are ready after it
        await received.get()
        await asyncio.sleep(2)  # heartbeats and rebalances after the first message are not part of a delivery
        me = threading.get_ident()
        sys.setprofile(profile)
        try:
            await producer.send(Message("Traced", b"second"))
            while await received.get() != b"second":
                pass
        finally:
            sys.setprofile(None)
        assert threading.get_ident() == me
    return {code.co_filename for code in codes if code.co_filename.startswith(PACKAGE)}


def main() -> int:
    with EmbeddedCluster() as cluster:
        found = sorted(asyncio.run(asyncio.wait_for(traced(cluster.name_server_addr), 60)))
    for name in found:
        print(Path(name).relative_to(Path(PACKAGE).parent))
    print(f"{len(found)} files for one delivery with its send (aim: at most {AIM})")
    return 0 if len(found) <= AIM else 1


if __name__ == "__main__":
    sys.exit(main())
