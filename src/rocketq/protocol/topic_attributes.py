"""Attributes of a topic, as 5.x has them: what each may say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUES: Final = "BatchCQ"
_CHOICES: Final = {
    QUEUE_TYPE: ("SimpleCQ", BATCH_QUEUES),
    "cleanup.policy": ("DELETE", "COMPACTION"),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
}
_RESERVE_TIME: Final = "reserve.time"
_RESERVE_TIME_MAX: Final = (1 << 63) - 1
_WHOLE: Final = re.compile(r"-1|\d{1,19}", re.ASCII)


def attribute_fault(attributes: Mapping[str, str]) -> str | None:
    """What is wrong with them; names that are not known say nothing and are kept, as those of later versions."""
    for name, value in attributes.items():
        choices = _CHOICES.get(name)
        if choices is not None and value not in choices:
            return f"attribute {name} is one of {', '.join(choices)}, not {value[:40]!r}"
        if name == _RESERVE_TIME and not (_WHOLE.fullmatch(value) and int(value) <= _RESERVE_TIME_MAX):
            return f"attribute {name} is a number of -1 or more, not {value[:40]!r}"
    if attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
        return f"attribute {QUEUE_TYPE}={BATCH_QUEUES}: this broker makes no batch queues, SimpleCQ only"
    return None
