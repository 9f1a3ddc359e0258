"""A process that appends to our store until it is killed; every line it prints is an acknowledged message."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from rocketq.store import Store

from . import ours
from .messages import Acknowledged
from .our_messages import SCHEDULE_TOPIC, append, append_batch, draft


def main(root: Path, port: int, topic: str) -> None:
    source = random.Random(port)
    with Store.open(ours.config(root, port)) as store:
        number = 0
        while True:
            number += 1
            for message in _step(store, topic, number, source):
                print(json.dumps(message.to_line()), flush=True)


def _step(store: Store, topic: str, number: int, source: random.Random) -> list[Acknowledged]:
    queue_id, body = number % ours.QUEUE_COUNT, source.randbytes(1 + source.randrange(1000))
    if number % 20 == 19:
        bodies = [source.randbytes(1 + source.randrange(1000)) for _ in range(8)]
        items = enumerate(bodies)
        return append_batch(
            store,
            [draft("our-batch", topic, queue_id, one, keys=f"b-{number}-{at}", tags="Batch") for at, one in items],
        )
    if number % 20 == 9:
        real = {"DELAY": "18", "REAL_TOPIC": topic, "REAL_QID": str(queue_id)}
        return [append(store, draft("delayed", SCHEDULE_TOPIC, 17, body, keys=f"d-{number}", extra=real))]
    return [append(store, draft("keyed", topic, queue_id, body, keys=f"k-{number}", tags=f"Tag{queue_id}"))]


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
