"""What a running consumer answers to operators."""

from __future__ import annotations

from typing import Any

from rocketq.protocol.bodies.heartbeat import Subscription
from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.flags import ConsumeResult


@body
class ProcessQueue(Body):
    """One owned queue. `droped` is how Java spells it; Go writes `dropped`."""

    commit_offset: int = member("commitOffset", default=0)
    cached_min_offset: int = member("cachedMsgMinOffset", default=0)
    cached_max_offset: int = member("cachedMsgMaxOffset", default=0)
    cached_count: int = member("cachedMsgCount", default=0)
    cached_mib: int = member("cachedMsgSizeInMiB", default=0)
    transaction_min_offset: int = member("transactionMsgMinOffset", default=0)
    transaction_max_offset: int = member("transactionMsgMaxOffset", default=0)
    transaction_count: int = member("transactionMsgCount", default=0)
    locked: bool = member("locked", default=False)
    unlock_attempts: int = member("tryUnlockTimes", default=0)
    last_lock_ms: int = member("lastLockTimestamp", default=0)
    dropped: bool = member("droped", also="dropped", default=False)
    last_pull_ms: int = member("lastPullTimestamp", default=0)
    last_consume_ms: int = member("lastConsumeTimestamp", default=0)


@body
class ConsumeRates(Body):
    pull_rt: float = member("pullRT", default=0.0)
    pull_tps: float = member("pullTPS", default=0.0)
    consume_rt: float = member("consumeRT", default=0.0)
    consume_ok_tps: float = member("consumeOKTPS", default=0.0)
    consume_failed_tps: float = member("consumeFailedTPS", default=0.0)
    consume_failed_count: int = member("consumeFailedMsgs", default=0)


@body
class RunningConsumer(Body):
    properties: dict[str, str] = member("properties", factory=dict)
    subscriptions: tuple[Subscription, ...] = member("subscriptionSet", default=())
    queues: dict[MessageQueue, ProcessQueue] = member("mqTable", factory=dict)
    pop_queues: dict[MessageQueue, Any] | None = member("mqPopTable", default=None)
    rates: dict[str, ConsumeRates] = member("statusTable", factory=dict)
    user_text: dict[str, str] | None = member("userConsumerInfo", default=None)
    stacks: str | None = member("jstack", default=None)


@body
class ConsumeDirectlyResult(Body):
    order: bool = member("order", default=False)
    auto_commit: bool = member("autoCommit", default=True)
    result: ConsumeResult | None = member("consumeResult", default=None)
    remark: str | None = member("remark", default=None)
    spent_ms: int = member("spentTimeMills", default=0)
