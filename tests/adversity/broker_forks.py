"""A process that forks brokers to be killed: one line of JSON in says where, lines out say what became of it.

pid <n>             the broker that was forked
ready               it serves
reaped <status>     it is gone
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from rocketq.broker import Broker, BrokerConfig
from rocketq.store import StoreConfig


async def serve(order: dict[str, Any]) -> None:
    settings = order["settings"]
    config = BrokerConfig.from_java(settings, port=order["port"], name="broker-a")
    broker = Broker(config, StoreConfig.from_java(settings, root=Path(order["root"])))
    await broker.start()
    say("ready")
    await asyncio.Event().wait()


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")  # one call: a line is whole or not there


def main() -> None:
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(serve(order))
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(3)
        say(f"pid {child}")
        _, status = os.waitpid(child, 0)
        say(f"reaped {os.waitstatus_to_exitcode(status)}")


if __name__ == "__main__":
    main()
