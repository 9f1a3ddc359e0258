"""Replicas on real stores and sockets: copying, failing over, coming back, with files compared byte by byte."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from errno import ENOSPC
from pathlib import Path

import pytest

from rocketq.replication.election import LeaseMode
from rocketq.replication.replica_files import FencedStore
from rocketq.store import FlushType

from .groups import HANG_S, SEGMENT_BYTES, LocalGroup, bytes_of, until

Work = Callable[[LocalGroup], Awaitable[None]]


def run(group: Callable[[], LocalGroup], work: Work) -> None:
    async def whole() -> None:
        async with asyncio.timeout(HANG_S), group() as running:
            await work(running)

    asyncio.run(whole())


@pytest.mark.parametrize("flush_type", list(FlushType))
def test_three_replicas_have_the_same_bytes_over_several_files(tmp_path: Path, flush_type: FlushType) -> None:
    """Goal: an acknowledged message is everywhere, blank fillers and all; readers see it at every replica."""

    async def work(group: LocalGroup) -> None:
        leader = await group.leader()
        ends = [leader.append(number) for number in range(1_500)]
        assert await leader.is_answered(ends[-1])
        assert leader.store.log_end > 2 * SEGMENT_BYTES
        await group.is_equal()
        assert leader.roles.told == ["lead 1"]
        for slave in group.others(leader):
            assert slave.store.visible_to >= ends[-1]
            assert not slave.leads
            refused = slave.store.refusal
            assert refused is not None
            assert "not the master" in refused

    run(lambda: LocalGroup(tmp_path, flush_type=flush_type), work)


def test_the_longest_takes_over_and_the_old_master_drops_its_tail(tmp_path: Path) -> None:
    """Goal: killed under load with messages nobody else has: nothing acknowledged is lost, the tail is cut."""

    async def work(group: LocalGroup) -> None:
        old = await group.leader()
        ends = [old.append(number) for number in range(300)]
        assert await old.is_answered(ends[-1])
        told = bytes_of(old.store)[: ends[-1]]
        for link in list(old.replica.listener.links):
            link.close("cut by the test")
        await old.replica.listener.stop()
        tail = [old.append(number) for number in range(300, 340)]
        assert not await old.is_answered(tail[-1], 0.3)
        assert old.store.visible_to == ends[-1]
        await old.stop(cleanly=False)
        new = await group.leader(in_sync=2)
        assert bytes_of(new.store)[: ends[-1]] == told
        after = [new.append(number) for number in range(1_000, 1_100)]
        assert await new.is_answered(after[-1])
        await old.start()
        await group.leader(in_sync=3)
        await group.is_equal()
        assert bytes_of(old.store)[: ends[-1]] == told
        assert old.replica.replica.load_epochs() == new.replica.replica.load_epochs()

    run(lambda: LocalGroup(tmp_path), work)


def test_a_clean_stop_hands_over_at_once(tmp_path: Path) -> None:
    """Goal: no lease has to run out when the master says goodbye; a planned switch goes where it was told to."""

    async def work(group: LocalGroup) -> None:
        first = await group.leader()
        end = first.append(1)
        assert await first.is_answered(end)
        chosen = group.others(first)[-1]
        first.replica.switch(chosen.replica.agent.broker_id)
        await until(lambda: chosen.leads, group.describe)
        second = await group.leader()
        assert second is chosen
        await second.stop(cleanly=True)
        third = await group.leader(in_sync=2)
        assert third is not second
        end = third.append(2)
        assert await third.is_answered(end)
        await second.start()
        await group.leader(in_sync=3)
        await group.is_equal()

    run(lambda: LocalGroup(tmp_path), work)


def test_an_empty_replica_gets_everything_from_the_first_file_on(tmp_path: Path) -> None:
    """Goal: several files, the first one deleted meanwhile: a copy from the master's first byte."""

    async def work(group: LocalGroup) -> None:
        late = group.members[-1]
        await late.stop(cleanly=True)
        leader = await group.leader(in_sync=2)
        ends = [leader.append(number) for number in range(1_500)]
        assert await leader.is_answered(ends[-1])
        await late.start()
        await group.leader(in_sync=3)
        await group.is_equal()
        assert late.store.log_start == leader.store.log_start == 0

    run(lambda: LocalGroup(tmp_path), work)


def test_a_master_alone_refuses_when_two_must_be_in_sync(tmp_path: Path) -> None:
    """Goal: both slaves gone: nothing is stored, and it goes on when they are back."""

    async def work(group: LocalGroup) -> None:
        leader = await group.leader()
        for slave in group.others(leader):
            await slave.stop(cleanly=False)
        await group.leader(in_sync=1)
        await until(lambda: "minInSyncReplicas" in (leader.store.refusal or ""), group.describe)
        with pytest.raises(AssertionError, match="minInSyncReplicas"):
            leader.append(1)
        for slave in group.others(leader):
            await slave.start()
        await group.leader(in_sync=3)
        await until(lambda: leader.store.refusal is None, group.describe)
        assert await leader.is_answered(leader.append(2))

    run(lambda: LocalGroup(tmp_path), work)


def test_restarts_of_all_at_once_lose_nothing(tmp_path: Path) -> None:
    """Goal: strict leases, synced logs; everybody stops without a word and comes back, again and again."""

    async def work(group: LocalGroup) -> None:
        told = b""
        for turn in range(3):
            leader = await group.leader()
            await until(lambda leader=leader: leader.store.refusal is None, group.describe)  # type: ignore[misc]
            ends = [leader.append(turn * 100 + number) for number in range(50)]
            assert await leader.is_answered(ends[-1])
            assert bytes_of(leader.store)[: len(told)] == told
            told = bytes_of(leader.store)[: ends[-1]]
            for member in group.members:
                await member.stop(cleanly=False)
            for member in reversed(group.members):
                await member.start()
        await group.leader()
        await group.is_equal()
        assert bytes_of(group.members[0].store)[: len(told)] == told

    run(lambda: LocalGroup(tmp_path, flush_type=FlushType.SYNC_FLUSH, mode=LeaseMode.STRICT), work)


@pytest.mark.parametrize("failure", ["log", "state"])
def test_a_master_whose_disk_fails_gives_way(tmp_path: Path, failure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: it stops at once and says nothing more; another one takes over with everything."""

    async def work(group: LocalGroup) -> None:
        broken = await group.leader()
        end = broken.append(1)
        assert await broken.is_answered(end)
        if failure == "log":
            broken.store.health.stop_writing("the log could not be flushed: a test")
        else:
            monkeypatch.setattr(broken.replica.replica, "save_state", _fail)
            broken.replica._put(broken.replica.agent._see_epoch(99))
        await until(lambda: broken.replica.failed, group.describe)
        assert broken.store.refusal is not None
        others = group.others(broken)
        await until(lambda: any(member.leads for member in others), group.describe)
        new = next(member for member in others if member.leads)
        await until(lambda: new.store.refusal is None, group.describe)
        assert await new.is_answered(new.append(2))
        assert bytes_of(new.store)[:end] == bytes_of(broken.store)[:end]

    run(lambda: LocalGroup(tmp_path), work)


def _fail(*_: object) -> None:
    raise OSError(5, "Input/output error")


def test_what_a_member_has_not_copied_is_not_deleted(tmp_path: Path) -> None:
    """Goal: retention waits for those in sync, and goes on once they have it."""

    async def work(group: LocalGroup) -> None:
        leader = await group.leader()
        ends = [leader.append(number) for number in range(1_200)]
        assert await leader.is_answered(ends[-1])
        assert leader.store.retention.kept_from == leader.store.log_end
        slowest = leader.replica.agent.term
        assert slowest is not None
        next(iter(slowest.followers.values())).written = 10
        assert leader.store.retention.kept_from == 10

    run(lambda: LocalGroup(tmp_path), work)


def test_a_long_truncation_holds_up_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: while a replica cuts its tail off, its lease is kept alive, and an epoch it sees meanwhile stays."""

    async def work(group: LocalGroup) -> None:
        old = await group.leader()
        end = old.append(1)
        assert await old.is_answered(end)
        await old.replica.listener.stop()
        for number in range(2, 20):
            old.append(number)
        await old.stop(cleanly=False)
        new = await group.leader(in_sync=2)
        assert await new.is_answered(new.append(100))
        begun, may_end = threading.Event(), threading.Event()
        original = FencedStore.cut

        def slow_cut(replica: FencedStore, point: int) -> int:
            begun.set()
            assert may_end.wait(HANG_S)
            return original(replica, point)

        monkeypatch.setattr(FencedStore, "cut", slow_cut)
        await old.start()
        await until(begun.is_set)
        lease = old.replica.agent.lease
        assert lease is not None
        valid_to_ms = lease.valid_to_ms
        await until(lambda: lease.valid_to_ms > valid_to_ms)  # kept alive meanwhile
        assert old.replica.replica.load_state().truncating_to is not None
        old.replica._put(old.replica.agent._see_epoch(old.replica.agent.state.epoch + 7))
        seen = old.replica.replica.load_state().epoch
        may_end.set()
        await until(lambda: old.replica.replica.load_state().truncating_to is None)
        assert old.replica.replica.load_state().epoch == seen

    run(lambda: LocalGroup(tmp_path), work)


def test_an_epoch_that_is_long_in_coming_to_disk_holds_up_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a slave's lease is kept alive meanwhile; nothing of the epoch is in its log before the entry is on disk."""
    begun, may_end = threading.Event(), threading.Event()
    original = FencedStore.begin_epoch

    def slow_begin(replica: FencedStore, number: int, start: int) -> None:
        begun.set()
        assert may_end.wait(HANG_S)
        original(replica, number, start)

    async def work(group: LocalGroup) -> None:
        monkeypatch.setattr(FencedStore, "begin_epoch", slow_begin)
        leader = await group.leader()
        leader.append(1)
        await until(begun.is_set)
        slaves = [member for member in group.members if member is not leader]
        lease = slaves[0].replica.agent.lease
        assert lease is not None
        valid_to_ms = lease.valid_to_ms
        leader.append(2)
        await until(lambda: lease.valid_to_ms > valid_to_ms)
        assert [slave.store.log_end for slave in slaves] == [0] * len(slaves)
        may_end.set()
        end = leader.append(3)
        assert await leader.is_answered(end)
        await until(lambda: all(slave.store.log_end == end for slave in slaves))

    run(lambda: LocalGroup(tmp_path), work)


def test_an_epoch_that_cannot_be_kept_stops_its_slave_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: a full disk ends the connection before a byte of the epoch is taken; with room again the slave goes on."""
    original, full = FencedStore.begin_epoch, [True]

    def begin(replica: FencedStore, number: int, start: int) -> None:
        if full[0]:
            raise OSError(ENOSPC, "No space left on device")
        original(replica, number, start)

    async def work(group: LocalGroup) -> None:
        monkeypatch.setattr(FencedStore, "begin_epoch", begin)
        leader = await group.leader()
        leader.append(1)
        slaves = [member for member in group.members if member is not leader]
        await until(lambda: any("cannot be saved" in slave.replica.follower.failure for slave in slaves))
        assert [slave.store.log_end for slave in slaves] == [0] * len(slaves)
        full[0] = False
        end = leader.append(2)
        await until(lambda: all(slave.store.log_end == end for slave in slaves))

    run(lambda: LocalGroup(tmp_path), work)
