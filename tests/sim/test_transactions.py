"""Thousands of transactions on a manual clock, with crashes in any append, power cuts, full disks and an index that is
still being built: nothing visible before its commit, nothing twice, nothing lost, nothing decided both ways."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.topics.table import TopicTable
from rocketq.broker.transaction.half_messages import half_of
from rocketq.broker.transaction.ledger import CheckRules
from rocketq.broker.transaction.message_log import TransactionLog
from rocketq.broker.transaction.service import Check, Decision, RejectedDecisionError, Transactions
from rocketq.model import NewMessage
from rocketq.protocol.bodies.offsets import ConsumerOffsets
from rocketq.protocol.bodies.topics import TopicConfig
from rocketq.protocol.flags import TransactionState
from rocketq.protocol.names import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC
from rocketq.protocol.properties import decode_properties
from rocketq.runtime.clock import ManualClock
from tests.sim.kernel_forms import COMPILED_IS_TESTED_TOO
from tests.sim.memory_store import HOST, Crash, MemoryStore

COMMIT, ROLLBACK, UNKNOWN = TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN
RULES = CheckRules(timeout_ms=6_000, checks_max=5)
INTERVAL_MS = 30_000
GROUP = "payers"


@dataclass
class Sent:
    """One transaction as its producer knows it."""

    number: int
    wish: TransactionState
    silent: bool
    """It never answers a check."""
    handles: list[tuple[int, int]] = field(default_factory=list)
    outcome: TransactionState | None = None
    """What was answered with success; certain only once it is safe."""
    outcome_count: int = 0
    tried: set[TransactionState] = field(default_factory=set)


class World:
    """A broker's transactions and their producers. `cuts`: the power may fail, so that only what is flushed counts."""

    def __init__(self, seed: int, *, cuts: bool) -> None:
        self.chance = random.Random(seed)
        self.cuts = cuts
        self.clock = ManualClock()
        self.store = MemoryStore(self.clock)
        self.topics = TopicTable([TopicConfig(topic="Orders", read_queue_count=4, write_queue_count=4)])
        self.saved = ConsumerOffsets()
        self.offsets = OffsetTable()
        self.sent: dict[str, Sent] = {}
        self.crashes = self.refusals = self.asked = 0
        self.start()

    def start(self) -> None:
        while True:
            self.offsets = OffsetTable()
            self.offsets.load(self.saved)
            source = TransactionLog(self.store, self.store, HOST)
            now_ms = self.clock.now_ms
            self.transactions = Transactions(source, self.topics, self.offsets, now_ms, lambda: RULES)
            try:
                self.transactions.start()
                return
            except Crash:
                self.crashes += 1

    def crash(self) -> None:
        self.crashes += 1
        self.store.crash_in = None
        self.store.full = False
        if self.cuts:
            self.store.cut_power(self.chance)
            for one in self.sent.values():
                one.handles = [handle for handle in one.handles if handle[1] in self.store.places]
                if one.outcome is not None and one.outcome_count > len(self.store.records):
                    one.outcome = None  # it may be gone again
        self.store.is_whole = self.chance.random() < 0.8
        if self.chance.random() < 0.05:
            self.saved = ConsumerOffsets()  # the file is lost
        self.start()

    # what producers do

    def send(self) -> None:
        number = len(self.sent)
        key = f"U{number}"
        sent = Sent(number, self.chance.choice((COMMIT, COMMIT, ROLLBACK)), silent=self.chance.random() < 0.03)
        properties = {"TRAN_MSG": "true", "PGROUP": GROUP, "UNIQ_KEY": key, "WAIT": "true"}
        if self.chance.random() < 0.1:
            properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] = str(self.chance.choice((-1, 1, 60, 100)))
        queue_id, born_ms = self.chance.randrange(4), self.clock.now_ms()
        message = NewMessage(topic="Orders", queue_id=queue_id, body=b"%d" % number, born_ms=born_ms, born_host=HOST)
        self.sent[key] = sent
        half = half_of(message, properties)
        result = self.store.append(half)
        if result.status.stored:
            self.transactions.prepared(half, result)
            sent.handles.append((result.queue_offset, result.log_offset))

    def decide(self, sent: Sent, state: TransactionState, handle: tuple[int, int]) -> None:
        """As a client does and the handler serves it; what is answered must not contradict what was answered."""
        sent.tried.add(state)
        refusal = self.refusal(Decision(GROUP, *handle, state))
        if refusal is not None:
            self.refusals += 1
            assert refusal.append is not None or sent.outcome is not state, f"{sent} was answered before: {refusal}"
            assert refusal.append is not None or len(sent.tried) > 1, f"{sent} was only wanted so: {refusal}"
            return
        assert sent.outcome in (None, state), f"{sent} was answered the other way before"
        sent.outcome, sent.outcome_count = state, len(self.store.records)

    def refusal(self, decision: Decision) -> RejectedDecisionError | None:
        try:
            self.transactions.decide(decision)
        except RejectedDecisionError as refused:
            return refused
        return None

    def end_some(self) -> None:
        known = [sent for sent in self.sent.values() if sent.handles]
        if not known:
            return
        sent = self.chance.choice(known[-60:] if self.chance.random() < 0.9 else known)
        state = sent.wish
        if self.chance.random() < 0.1:
            state = ROLLBACK if state is COMMIT else COMMIT
        self.decide(sent, state, self.chance.choice(sent.handles))

    def check_round(self, *, answer: float) -> None:
        self.clock.advance(INTERVAL_MS)
        for root in self.transactions.start_round():
            check = self.transactions.check(root)
            if check is not None:
                self.asked += 1
                self.take_check(check, answer)

    def take_check(self, check: Check, answer: float) -> None:
        sent = self.sent[check.unique_key]
        sent.handles.append((check.queue_offset, check.log_offset))
        if not sent.silent and self.chance.random() < answer:
            self.decide(sent, sent.outcome or sent.wish, sent.handles[-1])

    def save(self) -> None:
        self.transactions.save_floors(self.store.end, self.store.safe_to)
        if self.chance.random() < 0.5:
            self.saved = ConsumerOffsets.decode(self.offsets.body().encode())

    def act(self) -> None:
        self.clock.advance(self.chance.randrange(300))
        if self.store.crash_in is None and self.chance.random() < 0.03:
            self.store.crash_in = self.chance.randrange(12)
        self.store.full = self.chance.random() < 0.01
        if self.chance.random() < 0.1:
            self.store.is_whole = True
        draw = self.chance.random()
        if draw < 0.35:
            self.send()
        elif draw < 0.85:
            self.end_some()
        elif draw < 0.9:
            self.check_round(answer=0.7)
        elif draw < 0.95:
            self.store.flush()
        else:
            self.save()

    # what must be so

    def check_visible(self) -> None:
        seen: dict[str, int] = {}
        for record in self.store.of_topic("Orders"):
            key = decode_properties(record.properties)["UNIQ_KEY"]
            sent = self.sent[key]
            seen[key] = seen.get(key, 0) + 1
            assert seen[key] == 1, f"{sent} was delivered twice"
            assert COMMIT in sent.tried, f"{sent} is visible and nobody committed it"
            assert record.body == b"%d" % sent.number
            assert sent.outcome is not ROLLBACK, f"{sent} is visible and was rolled back"
        for key, sent in self.sent.items():
            assert sent.outcome is not COMMIT or seen.get(key) == 1, f"{sent} was committed and is not there"

    def check_nothing_lost(self) -> None:
        visible = {decode_properties(one.properties)["UNIQ_KEY"] for one in self.store.of_topic("Orders")}
        parked = [decode_properties(one.properties)["UNIQ_KEY"] for one in self.store.of_topic(CHECK_EXHAUSTED_TOPIC)]
        assert len(parked) == len(set(parked)), "given up twice"
        stored = {decode_properties(one.properties)["UNIQ_KEY"] for one in self.store.of_topic(HALF_TOPIC)}
        for key in stored:
            sent = self.sent[key]
            wanted = sent.outcome or (sent.wish if sent.tried <= {sent.wish} else None)
            if wanted is COMMIT:
                assert key in visible or (sent.outcome is None and key in parked), f"{sent} is lost"


def run(seed: int, *, cuts: bool, steps: int) -> World:
    world = World(seed, cuts=cuts)
    for step in range(steps):
        try:
            world.act()
        except Crash:
            world.crash()
        if step % 200 == 0:
            world.check_visible()
    world.store.crash_in, world.store.full = None, False
    for _ in range(RULES.checks_max + 6):
        world.check_round(answer=1)
    assert len(world.transactions.ledger) == 0, "some transactions never end"
    world.check_visible()
    world.check_nothing_lost()
    return world


@pytest.mark.parametrize("cuts", [False, True], ids=["crashes", "power-cuts"])
@pytest.mark.parametrize("seed", range(6))
def test_every_transaction_ends_once(seed: int, cuts: bool) -> None:
    """Goal: by any handle, from any client, across any crash, the first decision counts and the others do nothing."""
    world = run(seed, cuts=cuts, steps=3_000)
    assert world.crashes > 30
    assert world.refusals > 50
    assert world.asked > 100
    assert len(world.sent) > 800


@pytest.mark.slow
@pytest.mark.skipif(COMPILED_IS_TESTED_TOO, reason="the kernel only encodes here: run with the compiled one")
@pytest.mark.parametrize("cuts", [False, True], ids=["crashes", "power-cuts"])
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_more_worlds(seed: int, cuts: bool) -> None:
    run(seed, cuts=cuts, steps=6_000)


def run_some() -> None:
    for seed in range(10):
        run(seed, cuts=False, steps=2_000)


@pytest.mark.parametrize("fault", ["commit again", "forget ops"])
def test_a_fault_would_be_noticed(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: the simulation can fail."""
    if fault == "commit again":
        monkeypatch.setattr(TransactionLog, "is_committed", lambda *given: False)
    else:
        monkeypatch.setattr(Transactions, "_op", lambda *given, **named: None)
    with pytest.raises(AssertionError):
        run_some()


def test_memory_is_bounded_by_what_is_open() -> None:
    """Goal: a broker that settles transactions for days holds none of them, and its floors follow."""
    world = World(7, cuts=False)
    for _ in range(30_000):
        world.send()
        sent = world.sent.popitem()[1]
        world.transactions.decide(Decision(GROUP, *sent.handles[0], sent.wish))
        world.clock.advance(10)
        if world.clock.now_ms() % 60_000 == 0:
            world.store.flush()
            world.transactions.save_floors(world.store.end, world.store.safe_to)
    ledger = world.transactions.ledger
    assert (len(ledger), len(ledger._recent)) == (0, 20_000)
    assert len(ledger._op_tops) < 10_000
    assert world.offsets.of("CID_RMQ_SYS_TRANS", HALF_TOPIC)[0] > 20_000
