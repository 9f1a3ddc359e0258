"""Tables on their way to the disk, and answers that wait for them."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from rocketq.broker.admin.autosave import TableAutosave
from rocketq.broker.groups.offsets import OffsetTable
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.pipeline.persist_before_reply import PersistBeforeReply, Share
from rocketq.broker.topics.table import TopicTable
from rocketq.protocol.bodies.groups import GroupConfig
from rocketq.protocol.bodies.topics import TopicConfigTable
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, Dispatcher, RequestRejected
from rocketq.remoting.dispatch import Answer
from rocketq.store import StateFiles
from rocketq.store.disk import Disk

HANG_S = 30


class GatedDisk(Disk):
    """Replaces files when it is told to; counts them, and may fail."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.open.set()
        self.replaced: list[str] = []
        self.failure: OSError | None = None
        self.threads: set[str] = set()

    def replace(self, path: Path, data: bytes) -> None:
        assert self.open.wait(HANG_S)
        self.threads.add(threading.current_thread().name)
        if self.failure is not None:
            raise self.failure
        super().replace(path, data)
        self.replaced.append(path.name)


class Kept:
    """Tables with their keeper; must be made where a loop runs."""

    def __init__(self, root: Path) -> None:
        self.disk, self.root = GatedDisk(), root
        self.topics, self.groups, self.offsets = TopicTable(), GroupTable(), OffsetTable()
        self.keeper = TableAutosave(StateFiles(root, self.disk), self.topics, self.groups, self.offsets)
        self.keeper.load()

    def add(self, topic: str) -> None:
        self.topics.create_exactly(topic, 1, now_ms=1)

    def on_disk(self) -> set[str]:
        return set(StateFiles(self.root).topics.load().topics)


def test_a_change_is_on_disk_when_it_is_settled(tmp_path: Path) -> None:
    """Goal: another thread writes, and whoever waited finds the topic in the file."""

    async def run() -> None:
        kept = Kept(tmp_path)
        kept.add("T")
        assert not kept.keeper.is_saved
        await asyncio.wait_for(kept.keeper.wait_saved(), HANG_S)
        assert kept.on_disk() == {"T"}
        assert threading.current_thread().name not in kept.disk.threads

    asyncio.run(run())


def test_changes_during_a_write_are_written_together(tmp_path: Path) -> None:
    """Goal: a burst costs two writes, not one for each; who waited for the first does not wait for the second."""

    async def run() -> None:
        kept = Kept(tmp_path)
        kept.disk.open.clear()
        kept.add("first")
        first = asyncio.create_task(kept.keeper.wait_saved())
        await asyncio.sleep(0.05)  # it is being written by now, or the two go together, which is as good
        for number in range(20):
            kept.add(f"T{number}")
        kept.groups.put(GroupConfig(group="g"), now_ms=1)
        kept.disk.open.set()
        await asyncio.wait_for(first, HANG_S)
        await asyncio.wait_for(kept.keeper.wait_saved(), HANG_S)
        assert len(kept.on_disk()) == 21
        assert kept.disk.replaced.count("topics.json") <= 2
        assert kept.disk.replaced.count("subscriptionGroup.json") == 1

    asyncio.run(run())


def test_a_burst_of_changes_copies_the_table_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: thousands of topics that come to be at once must not cost a copy of all of them each."""
    copies, snapshot = [], TopicTable.snapshot

    def counted(topics: TopicTable) -> TopicConfigTable:
        copies.append(1)
        return snapshot(topics)

    monkeypatch.setattr(TopicTable, "snapshot", counted)

    async def run() -> None:
        kept = Kept(tmp_path)
        for number in range(1_000):
            kept.add(f"T{number}")
        await asyncio.wait_for(kept.keeper.wait_saved(), HANG_S)
        assert len(kept.on_disk()) == 1_000
        assert len(copies) == 1

    asyncio.run(run())


def test_a_change_nobody_waits_for_is_written_too(tmp_path: Path) -> None:
    async def run() -> None:
        kept = Kept(tmp_path)
        kept.add("T")
        async with asyncio.timeout(HANG_S):
            while not kept.keeper.is_saved:
                await asyncio.sleep(0.01)
        assert kept.on_disk() == {"T"}

    asyncio.run(run())


def test_what_could_not_be_saved_is_told_and_saved_later(tmp_path: Path) -> None:
    """Goal: a full disk is an error for who waits, and nothing is forgotten."""

    async def run() -> None:
        kept = Kept(tmp_path)
        kept.disk.failure = OSError(28, "no room")
        kept.add("T")
        with pytest.raises(OSError, match="no room"):
            await asyncio.wait_for(kept.keeper.wait_saved(), HANG_S)
        assert not kept.keeper.is_saved
        kept.disk.failure = None
        kept.offsets.commit("g", "T", 0, 7)
        await asyncio.wait_for(kept.keeper.save(), HANG_S)
        assert kept.on_disk() == {"T"}
        assert "consumerOffset.json" in kept.disk.replaced

    asyncio.run(run())


def test_a_write_that_has_ended_covers_nothing_behind_it(tmp_path: Path) -> None:
    """Goal: whoever comes when a write is done, and the keeper was not told so yet, neither spins nor is forgotten."""

    async def run() -> None:
        kept = Kept(tmp_path)
        ended = asyncio.create_task(asyncio.sleep(0))
        await ended
        kept.keeper._saving = ended
        kept.add("T")
        assert kept.keeper._saving is not ended
        await asyncio.wait_for(kept.keeper.wait_saved(), HANG_S)
        assert kept.on_disk() == {"T"}

    asyncio.run(run())


class Answers:
    """A dispatcher without a connection: what a registered handler gives, awaited where it is late."""

    def __init__(self, kept: Kept) -> None:
        self.dispatcher = self.registry = Dispatcher(middleware=[PersistBeforeReply(kept.keeper, ())])

    def ask(self, code: int) -> Answer:
        return self.dispatcher._handlers[code](Command(code=code), None)  # type: ignore[arg-type]


def test_answers_wait_for_what_their_request_changed_and_for_nothing_else(tmp_path: Path) -> None:
    """Goal: a request that changes nothing is answered at once, even while others wait for the disk."""

    async def run() -> None:
        kept = Kept(tmp_path)
        answers = Answers(kept)

        def change(request: Command, connection: Connection) -> Answer:
            kept.add("T")
            return request.answer(0)

        async def change_later(request: Command) -> Command:
            kept.add("Later")
            return request.answer(0)

        answers.registry.register(1, change)
        answers.registry.register(2, lambda request, connection: request.answer(0))
        answers.registry.register(3, lambda request, connection: change_later(request))
        answers.registry.register(4, lambda request, connection: None)

        kept.disk.open.clear()
        late = answers.ask(1)
        assert late is not None
        assert not isinstance(late, Command)
        assert isinstance(answers.ask(2), Command)
        assert answers.ask(4) is None
        kept.disk.open.set()
        answer = await asyncio.wait_for(_taken(late), HANG_S)
        assert isinstance(answer, Command)
        assert answer.code == 0
        assert kept.on_disk() == {"T"}

        later = answers.ask(3)
        assert later is not None
        assert not isinstance(later, Command)
        await asyncio.wait_for(_taken(later), HANG_S)
        assert kept.on_disk() == {"T", "Later"}

        unwanted = answers.ask(3)
        assert unwanted is not None
        assert not isinstance(unwanted, Command)
        unwanted.close()  # as under overload; what it was to do is not done, and nothing warns about it

    asyncio.run(run())


async def _taken(late: object) -> object:
    return await late  # type: ignore[misc]


def test_others_learn_of_a_change_when_it_is_on_disk_and_before_the_reply(tmp_path: Path) -> None:
    """Goal: disk, then each share in its order; none for requests that change nothing or are not shared."""

    async def run() -> None:
        kept, events = Kept(tmp_path), list[str]()

        def share(name: str) -> Share:
            async def run() -> None:
                assert "T" in kept.on_disk()
                events.append(name)

            return run

        def change(request: Command, connection: Connection) -> Answer:
            kept.add("T" if request.code == 1 else "U")
            return request.answer(0)

        dispatcher = Dispatcher(
            middleware=[PersistBeforeReply(kept.keeper, (share("replicas"), share("name servers")), unshared=(2,))]
        )
        for code in (1, 2):
            dispatcher.register(code, change)
        dispatcher.register(3, lambda request, connection: request.answer(0))
        for code, shared in ((1, ["replicas", "name servers"]), (2, []), (3, [])):
            answer = dispatcher._handlers[code](Command(code=code), None)  # type: ignore[arg-type]
            if not isinstance(answer, Command):
                answer = await asyncio.wait_for(_taken(answer), HANG_S)  # type: ignore[assignment]
            assert isinstance(answer, Command)
            assert events == shared
            events.clear()
        assert kept.on_disk() == {"T", "U"}

    asyncio.run(run())


def test_a_change_that_cannot_be_saved_is_shared_with_nobody(tmp_path: Path) -> None:
    async def run() -> None:
        kept, events = Kept(tmp_path), list[str]()

        async def share() -> None:
            events.append("shared")

        def change(request: Command, connection: Connection) -> Answer:
            kept.add("T")
            return request.answer(0)

        dispatcher = Dispatcher(middleware=[PersistBeforeReply(kept.keeper, (share,))])
        dispatcher.register(1, change)
        kept.disk.failure = OSError(28, "No space left on device")
        with pytest.raises(RequestRejected) as refused:
            await asyncio.wait_for(_taken(dispatcher._handlers[1](Command(code=1), None)), HANG_S)  # type: ignore[arg-type]
        assert refused.value.code == 1
        assert "No space left on device" in refused.value.remark
        assert not events

    asyncio.run(run())
