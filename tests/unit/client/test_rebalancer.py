"""Sharing, pulling and keeping offsets with a session that is only played."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rocketq.client import offsets as offset_store
from rocketq.client.core.allocation import Averagely
from rocketq.client.core.namespaces import Namespace
from rocketq.client.core.subscriptions import SubscriptionTable, make_subscription
from rocketq.client.fetcher import GroupPulls
from rocketq.client.offsets import ConsumerOffsets, FileOffsets, OffsetFileError
from rocketq.client.rebalance import RebalancePlan, Rebalancer
from rocketq.errors import ConnectionClosedError
from rocketq.protocol.bodies.assignment import Assignment, AssignmentAnswer
from rocketq.protocol.bodies.clients import ConsumerList
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import BrokerData, QueueData, TopicRoute
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.failures import BrokerError, RequestNotSupportedError, TopicNotFoundError
from rocketq.protocol.flags import ConsumeFromWhere, MessageModel, PullFlag, RequestMode
from rocketq.protocol.headers.pull import PullRequest
from rocketq.runtime.clock import ManualClock

ROUTE = TopicRoute(
    queues=(QueueData(broker_name="b", read_queue_count=4, write_queue_count=4, perm=6),),
    brokers=(BrokerData(cluster="c", broker_name="b", addrs={0: "master:1", 1: "slave:1"}),),
)
QUEUES = [MessageQueue(topic="T", broker_name="b", queue_id=number) for number in range(4)]


class PlayedSession:
    """Answers requests with what a test says, by code."""

    def __init__(self, **answers: Any) -> None:
        self.client_id = "me"
        self.clock = ManualClock()
        self.is_plain = False
        self.routes = self
        self.members = self
        self.answers = {RequestCode[name]: answer for name, answer in answers.items()}
        self.asked: list[tuple[int, str]] = []
        self.headers: list[Any] = []
        self.heartbeats = 0

    async def get(self, topic: str) -> TopicRoute:
        return ROUTE

    async def heartbeat(self) -> None:
        self.heartbeats += 1

    async def call(self, addr: str, header: Any, *, code: int | None = None, **given: Any) -> Command:
        number = code if code is not None else header.CODE
        self.asked.append((number, addr))
        self.headers.append(header)
        answer = self.answers[number]
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Command):
            return answer
        return Command(code=0, body=answer.encode())


class Owner:
    def __init__(self) -> None:
        self.queues: set[MessageQueue] = set()

    def owned(self) -> Collection[MessageQueue]:
        return list(self.queues)

    def stuck(self) -> Collection[MessageQueue]:
        return []

    async def apply(self, topic: str, plan: RebalancePlan) -> bool:
        self.queues -= set(plan.drop)
        self.queues |= set(plan.add)
        return plan.changes


def rounds(session: PlayedSession, count: int = 1, **given: Any) -> Owner:
    owner, table = Owner(), SubscriptionTable()
    table.put(make_subscription("T", "*", None, 1))
    settings = {"model": MessageModel.CLUSTERING, "strategy": Averagely(), "broker_assigns": False, **given}

    async def run() -> None:
        rebalancer = Rebalancer(session, "g", owner, table, interval_ms=1_000, **settings)  # type: ignore[arg-type]
        for _ in range(count):
            await rebalancer.round()

    asyncio.run(run())
    return owner


def members(*client_ids: str) -> ConsumerList:
    return ConsumerList(client_ids=client_ids)


def test_a_share_of_what_is_there() -> None:
    owner = rounds(PlayedSession(GET_CONSUMER_LIST_BY_GROUP=members("me", "you")))
    assert owner.queues == set(QUEUES[:2])


def test_a_forgotten_member_makes_itself_known_and_asks_again() -> None:
    """Goal: a broker that was restarted must not cost a consumer its queues."""
    answers = iter([members("you"), members("me", "you")])
    session = PlayedSession(GET_CONSUMER_LIST_BY_GROUP=lambda: next(answers))
    assert rounds(session).queues == set(QUEUES[:2])
    assert session.heartbeats == 2  # one to be known, one for the new version


def test_a_broker_that_does_not_answer_changes_nothing() -> None:
    session = PlayedSession(GET_CONSUMER_LIST_BY_GROUP=ConnectionClosedError("master:1", "gone"))
    assert rounds(session).queues == set()
    session = PlayedSession(GET_CONSUMER_LIST_BY_GROUP=BrokerError(1, "nobody of this group"))
    assert rounds(session).queues == set()


def test_a_topic_that_is_not_there_is_looked_for_more_often() -> None:
    """Goal: a consumer that was there before the first message need not wait for the next regular round."""
    session, table = PlayedSession(), SubscriptionTable()
    table.put(make_subscription("T", "*", None, 1))
    missing = TopicNotFoundError(ResponseCode.TOPIC_NOT_EXIST, "not yet")

    async def absent(topic: str) -> TopicRoute:
        raise missing

    async def run() -> tuple[int, int, int]:
        rebalancer = Rebalancer(
            session,  # type: ignore[arg-type]
            "g",
            Owner(),
            table,
            model=MessageModel.BROADCASTING,
            strategy=Averagely(),
            broker_assigns=False,
            interval_ms=20_000,
        )
        before_ms = rebalancer.pause_ms
        session.routes = SimpleNamespace(get=absent)  # type: ignore[assignment]
        await rebalancer.round()
        absent_ms = rebalancer.pause_ms
        session.routes = session
        await rebalancer.round()
        return before_ms, absent_ms, rebalancer.pause_ms

    assert asyncio.run(run()) == (20_000, 2_000, 20_000)


@pytest.mark.parametrize("answer", [ConnectionClosedError("master:1", "gone"), members()], ids=["gone", "nobody"])
def test_who_gets_no_answer_asks_soon_again(answer: object) -> None:
    """Goal: a broker that was busy for a moment must not cost a consumer a whole interval."""
    session, table, owner = PlayedSession(GET_CONSUMER_LIST_BY_GROUP=answer), SubscriptionTable(), Owner()
    table.put(make_subscription("T", "*", None, 1))

    async def run() -> tuple[int, int]:
        rebalancer = Rebalancer(
            session,  # type: ignore[arg-type]
            "g",
            owner,
            table,
            model=MessageModel.CLUSTERING,
            strategy=Averagely(),
            broker_assigns=False,
            interval_ms=20_000,
        )
        await rebalancer.round()
        unsettled_ms = rebalancer.pause_ms
        session.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = members("me")
        await rebalancer.round()
        return unsettled_ms, rebalancer.pause_ms

    assert asyncio.run(run()) == (2_000, 20_000)


def test_a_queue_that_another_member_has_locked_is_asked_for_soon_again() -> None:
    """Goal: what a member gives up late need not wait for the next regular round."""
    session, table, owner = PlayedSession(), SubscriptionTable(), Owner()
    table.put(make_subscription("T", "*", None, 1))

    async def locked(topic: str, plan: RebalancePlan) -> bool:
        return False

    async def run() -> tuple[int, int]:
        rebalancer = Rebalancer(
            session,  # type: ignore[arg-type]
            "g",
            owner,
            table,
            model=MessageModel.BROADCASTING,
            strategy=Averagely(),
            broker_assigns=False,
            interval_ms=20_000,
        )
        free, owner.apply = owner.apply, locked  # type: ignore[method-assign]
        await rebalancer.round()
        locked_ms, owner.apply = rebalancer.pause_ms, free  # type: ignore[method-assign]
        await rebalancer.round()
        return locked_ms, rebalancer.pause_ms

    assert asyncio.run(run()) == (1_000, 20_000)


def test_broadcasting_asks_nobody() -> None:
    session = PlayedSession()
    assert rounds(session, model=MessageModel.BROADCASTING).queues == set(QUEUES)
    assert session.asked == []


def test_a_strategy_that_fails_changes_nothing() -> None:
    class Broken:
        name = "BROKEN"

        def allocate(self, *given: Any) -> list[MessageQueue]:
            raise ZeroDivisionError

    assert rounds(PlayedSession(GET_CONSUMER_LIST_BY_GROUP=members("me")), strategy=Broken()).queues == set()


def test_a_broker_may_assign() -> None:
    answer = AssignmentAnswer(assignments=(Assignment(queue=QUEUES[3]),))
    session = PlayedSession(QUERY_ASSIGNMENT=answer)
    assert rounds(session, broker_assigns=True).queues == {QUEUES[3]}
    assert [code for code, _ in session.asked] == [RequestCode.QUERY_ASSIGNMENT]


@pytest.mark.parametrize(
    "refusal",
    [
        RequestNotSupportedError(3, "no such request"),
        AssignmentAnswer(assignments=(Assignment(queue=QUEUES[0], mode=RequestMode.POP),)),
    ],
    ids=["refused", "pop"],
)
def test_where_the_first_question_is_refused_members_share_for_good(refusal: Any) -> None:
    session = PlayedSession(QUERY_ASSIGNMENT=refusal, GET_CONSUMER_LIST_BY_GROUP=members("me"))
    assert rounds(session, 3, broker_assigns=True).queues == set(QUEUES)
    assert [code for code, _ in session.asked].count(RequestCode.QUERY_ASSIGNMENT) == 1


def test_a_broker_that_assigned_before_is_asked_on_after_a_failure() -> None:
    """Goal: no answer, or no list, means: keep what there is."""
    answers = iter(
        [
            AssignmentAnswer(assignments=(Assignment(queue=QUEUES[1]),)),
            RequestNotSupportedError(3, "not now"),
            AssignmentAnswer(),
            ConnectionClosedError("master:1", "gone"),
        ]
    )
    session = PlayedSession(QUERY_ASSIGNMENT=lambda: next(answers))
    assert rounds(session, 4, broker_assigns=True).queues == {QUEUES[1]}


def test_pulls_go_where_brokers_suggest_and_commit_at_masters_only() -> None:
    fields = {"suggestWhichBrokerId": "1", "nextBeginOffset": "5", "minOffset": "0", "maxOffset": "9"}
    answer = Command(code=ResponseCode.PULL_NOT_FOUND, ext_fields=fields)
    session = PlayedSession(PULL_MESSAGE=answer)

    async def run() -> None:
        pulls = GroupPulls(session, "g", Namespace())  # type: ignore[arg-type]
        for _ in range(2):
            subscription = make_subscription("T", "*", None, 1)
            await pulls.pull(QUEUES[0], 5, subscription, count_max=32, commit_offset=4, hold_ms=10, timeout_ms=100)

    asyncio.run(run())
    assert [addr for _, addr in session.asked] == ["master:1", "slave:1"]
    flags = [header.flags for header in session.headers if isinstance(header, PullRequest)]
    assert flags == [PullFlag.HOLD | PullFlag.COMMIT_OFFSET, PullFlag.HOLD]


def test_offsets_that_were_not_saved_are_saved_the_next_time() -> None:
    saved: list[dict[MessageQueue, int]] = []
    failures = iter([ConnectionClosedError("b", "gone"), ValueError("a user's own fault"), None])

    class Store:
        async def load(self, group: str, queue: MessageQueue) -> int | None:
            return 3

        async def save(self, group: str, offsets: dict[MessageQueue, int]) -> None:
            if (failure := next(failures)) is not None:
                raise failure
            saved.append(dict(offsets))

    async def run() -> None:
        where = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
        group_offsets = ConsumerOffsets(Store(), SimpleNamespace(), "g", from_where=where, from_time_ms=0)  # type: ignore[arg-type]
        assert await group_offsets.start_of(QUEUES[0]) == 3
        group_offsets.table.update(QUEUES[0], 9)
        assert [await group_offsets.save() for _ in range(4)] == [False, False, True, True]

    asyncio.run(run())
    assert saved == [{QUEUES[0]: 9}]


def test_the_offset_file_and_its_backup(tmp_path: Path) -> None:
    """Goal: a torn file falls back to the one before; two torn ones are told, not overwritten."""

    async def load() -> int | None:
        store = FileOffsets(tmp_path)
        try:
            return await store.load("g", QUEUES[0])
        finally:
            await store.close("g")

    async def run() -> None:
        assert await load() is None
        store = FileOffsets(tmp_path)
        await store.save("g", {QUEUES[0]: 5})
        await store.save("g", {QUEUES[0]: 6, QUEUES[1]: 1})
        with pytest.raises(OffsetFileError, match="another consumer uses it"):
            await load()
        await store.close("g")
        path = store.path("g")
        assert await load() == 6
        path.write_bytes(b'{"offsetTable":{')
        assert await load() == 5
        backup = path.with_suffix(".json.bak")
        backup.write_bytes(b"")
        with pytest.raises(OffsetFileError, match="move it away"):
            await load()
        assert path.read_bytes() == b'{"offsetTable":{'

    asyncio.run(run())


def test_a_save_that_is_cancelled_comes_to_its_end_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a consumer that is closed while it saves: two writers of one file would leave none."""
    writers, most, began, go_on = 0, 0, threading.Event(), threading.Event()
    write = offset_store._write

    def slowly(path: Path, data: bytes) -> None:
        nonlocal writers, most
        writers += 1
        most = max(most, writers)
        began.set()
        go_on.wait(10)
        write(path, data)
        writers -= 1

    monkeypatch.setattr(offset_store, "_write", slowly)

    async def run() -> int | None:
        store = FileOffsets(tmp_path)
        first = asyncio.create_task(store.save("g", {QUEUES[0]: 1}))
        await asyncio.to_thread(began.wait, 10)
        first.cancel()
        second = asyncio.create_task(store.save("g", {QUEUES[0]: 2}))
        for _ in range(5):
            await asyncio.sleep(0)
        go_on.set()
        assert isinstance((await asyncio.gather(first, second, return_exceptions=True))[0], asyncio.CancelledError)
        await store.close("g")
        return await FileOffsets(tmp_path).load("g", QUEUES[0])

    assert asyncio.run(run()) == 2
    assert most == 1
