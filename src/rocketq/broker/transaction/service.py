"""Transactions: half messages, decisions, checks, and giving up. The ledger decides, the log has the facts.

No step waits. Each writes its messages in order, and after a crash a replay finds either the state before the step or
enough to finish it:

| step | written in this order | found after a crash in between |
|---|---|---|
| commit | real message, op | the real message, by its unique key: the op is written then |
| rollback | op | |
| check | copy of the half, op of the old one (moved) | two copies: the newer counts, the op is written then |
| giving up | copy in the topic of the undecided, op | that copy, by its unique key: the op is written then |
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction.half_messages import (
    QUEUE_ID,
    TRANSACTION_GROUP,
    Half,
    check_body,
    committed,
    copy_of,
    given_up,
    half_of,
    immunity_ms,
    op_for,
)
from rocketq.broker.transaction.ledger import CheckRules, OpenTransaction, Outcome, Step, TransactionLedger
from rocketq.broker.transaction.message_log import TransactionLog
from rocketq.broker.transaction.replay import Floors, opened_from, replay
from rocketq.errors import RocketQError
from rocketq.model import NewMessage
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.names import CHECK_EXHAUSTED_TOPIC, HALF_OP_TOPIC, HALF_TOPIC, NOT_FOR_CLIENTS, Property
from rocketq.protocol.properties import decode_properties
from rocketq.store import AppendResult, AppendStatus

log = logging.getLogger(__name__)

_TOO_LARGE: Final = (AppendStatus.MESSAGE_ILLEGAL, AppendStatus.PROPERTIES_SIZE_EXCEEDED)
_OUTCOMES: Final = {
    TransactionState.COMMIT: Outcome.COMMITTED,
    TransactionState.ROLLBACK: Outcome.ROLLED_BACK,
}


class RejectedDecisionError(RocketQError):
    """A rejected decision; `topic_missing` and `append` have the cause if the request itself was valid."""

    def __init__(self, reason: str, *, topic_missing: bool = False, append: AppendStatus | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.topic_missing = topic_missing
        self.append = append


@dataclass(frozen=True, slots=True)
class Decision:
    """A producer's decision about a half message."""

    group: str
    half_queue_offset: int
    half_log_offset: int
    state: TransactionState


@dataclass(frozen=True, slots=True)
class Check:
    """A check to send to a producer of the group, about the copy at these offsets."""

    group: str
    root: int
    checks: int
    unique_key: str
    queue_offset: int
    log_offset: int
    log_end: int
    message_id: str
    body: bytes


class Transactions:
    """For one thread. `rules` is called at every step, so that changed settings apply immediately."""

    def __init__(
        self,
        source: TransactionLog,
        topics: TopicTable,
        offsets: OffsetTable,
        now_ms: Callable[[], int],
        rules: Callable[[], CheckRules],
        *,
        make_key: Callable[[], str] = lambda: "",
        place: Callable[[NewMessage], NewMessage] = lambda message: message,
        on_committed: Callable[[NewMessage, AppendResult], None] = lambda message, result: None,
        on_finished: Callable[[str, Outcome, int], None] = lambda topic, outcome, took_ms: None,
    ) -> None:
        """`place` places a committed message, which may have a delay."""
        self.ledger = TransactionLedger()
        self._log = source
        self._topics = topics
        self._offsets = offsets
        self._now_ms = now_ms
        self._rules = rules
        self._make_key = make_key
        self._place = place
        self._on_committed = on_committed
        self._on_finished = on_finished
        self._pending_ops: deque[tuple[int, int | None, int | None]] = deque()  # ops that the store rejected
        self._floors: tuple[int, Floors] | None = None

    def start(self) -> None:
        """Replay the queues of halves and ops."""
        half, op = (self._offsets.get(TRANSACTION_GROUP, topic, QUEUE_ID) for topic in (HALF_TOPIC, HALF_OP_TOPIC))
        for old, new in replay(self.ledger, self._log, Floors(half, op)):
            self._op(old, moved_to=new)
        if len(self.ledger):
            log.info("%d transactions are open", len(self.ledger))

    # halves

    def prepare(self, message: NewMessage, properties: dict[str, str]) -> NewMessage:
        """The half message to store; adds a unique key to `properties` if it is missing."""
        for topic in (HALF_TOPIC, HALF_OP_TOPIC):
            self._topics.create_exactly(topic, 1, now_ms=self._now_ms())
        properties.setdefault(Property.UNIQUE_KEY, self._make_key())
        return half_of(message, properties)

    def prepared(self, message: NewMessage, result: AppendResult) -> None:
        """A half was stored."""
        properties = decode_properties(message.properties)
        transaction = OpenTransaction(
            root=result.queue_offset,
            queue_offset=result.queue_offset,
            log_offset=result.log_offset,
            store_ms=result.store_ms,
            born_ms=message.born_ms,
            immunity_ms=immunity_ms(properties),
            topic=properties.get(Property.REAL_TOPIC, ""),
        )
        self.ledger.opened(transaction)

    # decisions

    def decide(self, decision: Decision) -> None:
        """Commit or roll back a transaction; a repeated decision changes nothing, a contradicting one is rejected."""
        half = self.half_of(decision)
        root = self._log.root_of(half)
        wanted = _OUTCOMES[decision.state]
        self._write_pending_ops()
        transaction = self._open_one(root, half)
        if transaction is not None:
            self._complete(half, transaction, wanted)
            return
        outcome = self.ledger.outcome(root) or self._log.outcome_of(root, half)
        if outcome is Outcome.GIVEN_UP:
            self._complete(half, replace(opened_from(half, root), resumed=True), wanted)
        elif outcome is not wanted:
            self.ledger.remember(root, outcome)
            raise RejectedDecisionError(
                f"the transaction of the half message at queue offset {root} was {outcome.value} before"
            )

    def half_of(self, decision: Decision) -> Half:
        """The half of a decision; RejectedDecisionError if offsets or group do not match."""
        half = self._log.half_at(decision.half_log_offset)
        if half is None:
            raise RejectedDecisionError(
                f"no half message at log offset {decision.half_log_offset}: it was never stored on this broker, or its "
                "log file was deleted"
            )
        if half.group != decision.group:
            raise RejectedDecisionError(
                f"the half message at log offset {decision.half_log_offset} is of producer group {half.group}, not of "
                f"{decision.group}"
            )
        if half.record.queue_offset != decision.half_queue_offset:
            raise RejectedDecisionError(
                f"the half message at log offset {decision.half_log_offset} has queue offset "
                f"{half.record.queue_offset}, not {decision.half_queue_offset}"
            )
        return half

    def _open_one(self, root: int, half: Half) -> OpenTransaction | None:
        """The transaction if it is open, after finishing a step that a crash interrupted."""
        transaction = self.ledger.find(root)
        if transaction is None or transaction.verified:
            return transaction
        if self._log.is_committed(root, half):
            self._close(transaction, Outcome.COMMITTED)
        elif not transaction.resumed and self._log.is_given_up(root, half):
            self._close(transaction, Outcome.GIVEN_UP)
        else:
            self.ledger.verified(root)
        return self.ledger.find(root)

    def _complete(self, half: Half, transaction: OpenTransaction, wanted: Outcome) -> None:
        if wanted is Outcome.COMMITTED:
            self._commit(half)
            self._close(transaction, wanted)
            self._finished(half, wanted)
            return
        result = self._write_op(transaction.queue_offset, key=_key(transaction))
        if not result.status.stored:
            raise RejectedDecisionError(result.reason or result.status.value, append=result.status)
        self.ledger.completed(transaction.root, wanted)
        self._finished(half, wanted)

    def _finished(self, half: Half, outcome: Outcome) -> None:
        self._on_finished(half.topic, outcome, self._now_ms() - half.record.born_ms)

    def _commit(self, half: Half) -> None:
        topic = self._topics.get(half.topic)
        if topic is None:
            raise RejectedDecisionError(
                f"topic {half.topic} does not exist: create it and commit again", topic_missing=True
            )
        if half.topic in NOT_FOR_CLIENTS or not self._has_queue(topic, half.queue_id):
            raise RejectedDecisionError(
                f"the half message is for queue {half.queue_id} of topic {half.topic}, to which clients cannot send"
            )
        message = self._place(committed(half))
        result = self._log.append(message)
        if not result.status.stored:
            raise RejectedDecisionError(result.reason or result.status.value, append=result.status)
        self._on_committed(message, result)

    def _has_queue(self, topic: TopicConfig, queue_id: int) -> bool:
        """Whether a topic has a queue, or had it: its number of queues may have been reduced since the send."""
        count = max(topic.read_queue_count, topic.write_queue_count)
        return 0 <= queue_id < count or self._log.has_messages(topic.topic, queue_id)

    def _close(self, transaction: OpenTransaction, outcome: Outcome) -> None:
        self.ledger.completed(transaction.root, outcome)
        self._op(transaction.queue_offset, key=_key(transaction))

    # checks

    def start_round(self) -> list[int]:
        """The open transactions of a round of checks."""
        self._write_pending_ops()
        return [transaction.root for transaction in self.ledger]

    def check(self, root: int) -> Check | None:
        """Run the due step of a transaction; returns a check to send, or None."""
        transaction, rules = self.ledger.find(root), self._rules()
        if transaction is None:
            return None
        step = self.ledger.due(transaction, self._now_ms(), self._log.half_bounds()[1], rules)
        if step is None:
            return None
        half = self._log.half_at(transaction.log_offset)
        if half is None:
            self._forget_deleted(transaction)
        elif self._open_one(root, half) is None:
            return None
        elif step is Step.GIVE_UP:
            self._give_up(transaction, half)
        else:
            return self._move(transaction, half, transaction.checks + (step is Step.ASK), asks=step is Step.ASK)
        return None

    def _move(self, transaction: OpenTransaction, half: Half, checks: int, *, asks: bool) -> Check | None:
        message = copy_of(half, transaction.root, checks)
        result = self._log.append(message)
        if result.status in _TOO_LARGE:  # a half of another broker, without room for the counter
            self._give_up(transaction, half)
        if not result.status.stored:
            return None
        self.ledger.opened(replace(_moved(transaction, result), checks=checks))
        self._op(transaction.queue_offset, moved_to=result.queue_offset)
        if not asks:
            return None
        return Check(
            group=half.group,
            root=transaction.root,
            checks=checks,
            unique_key=half.unique_key,
            queue_offset=result.queue_offset,
            log_offset=result.log_offset,
            log_end=result.end,
            message_id=result.message_id,
            body=check_body(half, message, result.queue_offset, result.log_offset),
        )

    def _give_up(self, transaction: OpenTransaction, half: Half) -> None:
        self._topics.create_exactly(CHECK_EXHAUSTED_TOPIC, 1, now_ms=self._now_ms())
        if not self._log.append(given_up(half, transaction.root)).status.stored:
            return
        self._close(transaction, Outcome.GIVEN_UP)
        log.warning("message %s of producer group %s for topic %s not decided after %d checks, moved to %s",
                    half.unique_key, half.group, half.topic, transaction.checks, CHECK_EXHAUSTED_TOPIC)  # fmt: skip

    def _forget_deleted(self, transaction: OpenTransaction) -> None:
        if transaction.log_offset < self._log.start:
            log.warning(
                "the undecided half message at queue offset %d was deleted with its log file", transaction.queue_offset
            )
            self.ledger.completed(transaction.root, Outcome.GIVEN_UP)

    def resume(self, half: Half) -> None:
        """Restart the checks of a transaction; RejectedDecisionError if it is complete."""
        root = self._log.root_of(half)
        transaction = self._open_one(root, half)
        if transaction is None and (outcome := self._log.outcome_of(root, half)) is not Outcome.GIVEN_UP:
            raise RejectedDecisionError(f"the transaction was {outcome.value} before: there is nothing to ask about")
        resumed = transaction is None or transaction.resumed
        result = self._log.append(copy_of(half, root, 0, resumed=resumed))
        if not result.status.stored:
            raise RejectedDecisionError(result.reason or result.status.value, append=result.status)
        fresh = replace(opened_from(half, root if root >= 0 else result.queue_offset), checks=0, resumed=resumed)
        self.ledger.opened(_moved(fresh, result))
        if transaction is not None:
            self._op(transaction.queue_offset, moved_to=result.queue_offset)

    # op messages

    def _op(self, half_offset: int, *, key: int | None = None, moved_to: int | None = None) -> None:
        """Write an op message for a half; queued for a retry if the store rejects it."""
        if self._pending_ops or not self._write_op(half_offset, key=key, moved_to=moved_to).status.stored:
            self._pending_ops.append((half_offset, key, moved_to))

    def _write_op(self, half_offset: int, *, key: int | None = None, moved_to: int | None = None) -> AppendResult:
        message = op_for(half_offset, now_ms=self._now_ms(), host=self._log.host, key=key, moved_to=moved_to)
        result = self._log.append(message)
        if result.status.stored:
            self.ledger.op_written(result.queue_offset, half_offset)
        return result

    def _write_pending_ops(self) -> None:
        while self._pending_ops:
            half_offset, key, moved_to = self._pending_ops[0]
            if not self._write_op(half_offset, key=key, moved_to=moved_to).status.stored:
                return
            self._pending_ops.popleft()

    # floors

    def save_floors(self, log_end: int, safe_to: int) -> None:
        """Save the floors once the log is flushed up to its end at the time they were computed: a floor must not
        survive the loss of the copies it relies on."""
        if self._floors is not None and safe_to >= self._floors[0]:
            self._commit_floors(self._floors[1])
            self._floors = None
        if self._floors is None:
            half = self.ledger.half_floor(self._log.half_bounds()[1])
            if self._pending_ops:
                half = min(half, *(pending[0] for pending in self._pending_ops))
            self._floors = log_end, Floors(half, self.ledger.op_floor(half))
            if safe_to >= log_end:
                self._commit_floors(self._floors[1])

    def _commit_floors(self, floors: Floors) -> None:
        for topic, floor in ((HALF_TOPIC, floors.half), (HALF_OP_TOPIC, floors.op)):
            if floor and floor != self._offsets.get(TRANSACTION_GROUP, topic, QUEUE_ID):
                self._offsets.commit(TRANSACTION_GROUP, topic, QUEUE_ID, floor)


def _moved(transaction: OpenTransaction, result: AppendResult) -> OpenTransaction:
    return replace(
        transaction, queue_offset=result.queue_offset, log_offset=result.log_offset, store_ms=result.store_ms
    )


def _key(transaction: OpenTransaction) -> int | None:
    return transaction.root if transaction.resumed else None
