"""Where a queue is begun that the group never committed an offset of."""

from __future__ import annotations

from enum import StrEnum

from rocketq.protocol.flags import ConsumeFromWhere
from rocketq.protocol.names import RETRY_PREFIX


class StartRule(StrEnum):
    ZERO = "the first message; brokers say where that is when 0 is gone"
    END = "behind the last message"
    TIME = "the first message of a time"


def start_rule(from_where: ConsumeFromWhere, topic: str) -> StartRule:
    """Retries are never skipped, except where a time was asked for."""
    is_retry = topic.startswith(RETRY_PREFIX)
    match from_where:
        case ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
            return StartRule.ZERO
        case ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
            return StartRule.END if is_retry else StartRule.TIME
        case _:
            return StartRule.ZERO if is_retry else StartRule.END
