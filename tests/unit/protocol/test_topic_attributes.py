"""What attributes of a topic may say."""

from __future__ import annotations

import pytest

from rocketq.protocol.bodies.topics import attribute_fault


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"queue.type": "SimpleCQ"},
        {"cleanup.policy": "COMPACTION"},
        {"message.type": "MIXED"},
        {"reserve.time": "-1"},
        {"reserve.time": str((1 << 63) - 1)},
        {"of.a.later.version": "whatever"},
    ],
    ids=str,
)
def test_what_5_3_3_takes_is_taken(attributes: dict[str, str]) -> None:
    assert attribute_fault(attributes) is None


@pytest.mark.parametrize(
    ("attributes", "told"),
    [
        ({"queue.type": "BatchCQ"}, "this broker makes no batch queues"),
        ({"queue.type": "batchcq"}, "attribute queue.type is one of SimpleCQ, BatchCQ, not 'batchcq'"),
        ({"cleanup.policy": ""}, "attribute cleanup.policy is one of DELETE, COMPACTION, not ''"),
        ({"message.type": "NORMAL", "reserve.time": "1h"}, "attribute reserve.time is a number of -1 or more"),
        ({"reserve.time": str(1 << 63)}, "attribute reserve.time"),
        ({"reserve.time": "-2"}, "attribute reserve.time"),
    ],
    ids=str,
)
def test_others_are_named(attributes: dict[str, str], told: str) -> None:
    assert told in (attribute_fault(attributes) or "")
