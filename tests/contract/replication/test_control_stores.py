"""One contract for every control store: the memory one of the simulations, and a real etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rocketq.replication import control
from rocketq.replication.control import (
    AliveReport,
    ChangeRejectedError,
    ControlStore,
    Group,
    GroupState,
    LeaseLostError,
    MasterKey,
    Put,
    Replica,
    Transaction,
)
from rocketq.replication.control_etcd import EtcdControl
from rocketq.replication.control_memory import ControlTable, MemoryControl
from rocketq.replication.etcd_gateway import EtcdConfig
from rocketq.runtime.clock import SystemClock
from rocketq.testing.etcd import PACKAGE, LocalEtcd, find_etcd

HANG_S = 60
GROUP = Group("cluster", "broker-a")
Work = Callable[[ControlStore], Awaitable[None]]
Runner = Callable[[Work], None]

needs_etcd = pytest.mark.skipif(
    find_etcd() is None, reason=f"the program etcd is not installed (apt install {PACKAGE})"
)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalEtcd]:
    with LocalEtcd(tmp_path_factory.mktemp("etcd")) as server:
        yield server


@pytest.fixture(params=["memory", pytest.param("etcd", marks=needs_etcd)])
def run(request: pytest.FixtureRequest) -> Runner:
    """Runs a coroutine with an empty control store."""
    if request.param == "memory":
        table = ControlTable()
        return lambda work: _run(MemoryControl(SystemClock(), table), work)
    server: LocalEtcd = request.getfixturevalue("etcd")
    config = EtcdConfig(endpoints=server.endpoints, prefix=f"test-{request.node.name}")
    return lambda work: _run(EtcdControl(config), work)


def _run(store: ControlStore, work: Work) -> None:
    async def whole() -> None:
        try:
            async with asyncio.timeout(HANG_S):
                await work(store)
        finally:
            await store.close()

    asyncio.run(whole())


async def join(store: ControlStore, name: str) -> int:
    number, change = control.apply_for_id(await store.read(GROUP), Replica(name, f"code-{name}"))
    assert await store.commit(GROUP, change) is not None
    return number


async def elect(store: ControlStore, broker_id: int, lease_id: int) -> GroupState:
    state, change = control.elect(await store.read(GROUP), MasterKey(broker_id, 0, f"addr{broker_id}"), lease_id)
    assert await store.commit(GROUP, change) is not None
    return state


def test_an_empty_group_has_nothing(run: Runner) -> None:
    """Goal: a group that nobody joined yet can be read."""

    async def work(store: ControlStore) -> None:
        view = await store.read(GROUP)
        assert (view.state, view.master, view.last_id, dict(view.replicas), dict(view.alive)) == (
            None,
            None,
            None,
            {},
            {},
        )
        assert view.revision > 0

    run(work)


def test_ids_are_given_once(run: Runner) -> None:
    """Goal: two that apply for the same id: one gets it, the other reads again; ids of the gone are not given again."""

    async def work(store: ControlStore) -> None:
        view = await store.read(GROUP)
        (one, first), (two, second) = (control.apply_for_id(view, Replica(name, name)) for name in "ab")
        assert one == two == 1
        assert await store.commit(GROUP, first) is not None
        assert await store.commit(GROUP, second) is None
        assert await join(store, "b") == 2
        assert await store.commit(GROUP, control.clean(await store.read(GROUP), 2)) is not None
        assert await join(store, "c") == 3
        view = await store.read(GROUP)
        assert {number: item.value.check_code for number, item in view.replicas.items()} == {1: "a", 3: "code-c"}

    run(work)


def test_an_election_makes_one_master_of_a_new_epoch(run: Runner) -> None:
    """Goal: of two that campaign on the same view one wins; the key goes with the winner's lease."""

    async def work(store: ControlStore) -> None:
        ids = [await join(store, name) for name in "ab"]
        leases = [await store.grant(5_000) for _ in ids]
        view = await store.read(GROUP)
        changes = [control.elect(view, MasterKey(ids[at], 0, "x"), leases[at])[1] for at in (0, 1)]
        outcomes = [await store.commit(GROUP, change) for change in changes]
        assert [outcome is not None for outcome in outcomes] == [True, False]
        view = await store.read(GROUP)
        assert view.state is not None
        assert view.state.value == GroupState(ids[0], 1, frozenset({ids[0]}), 1)
        assert view.state.revision == outcomes[0]
        assert view.master is not None
        assert (view.master.value, view.master.lease_id) == (MasterKey(ids[0], 1, "x"), leases[0])
        with pytest.raises(ChangeRejectedError):
            control.elect(view, MasterKey(ids[1], 0, "y"), leases[1])
        await store.revoke(leases[0])
        view = await store.read(GROUP)
        assert view.master is None
        assert view.state is not None
        with pytest.raises(ChangeRejectedError, match="not in sync"):
            control.elect(view, MasterKey(ids[1], 0, "y"), leases[1])

    run(work)


def test_altering_the_set_and_electing_exclude_each_other(run: Runner) -> None:
    """Goal: exactly one of two changes decided on the same state is made."""

    async def work(store: ControlStore) -> None:
        ids = [await join(store, name) for name in "ab"]
        leases = [await store.grant(5_000) for _ in ids]
        await elect(store, ids[0], leases[0])
        _, both = control.alter_set(await store.read(GROUP), ids[0], leases[0], frozenset(ids))
        assert await store.commit(GROUP, both) is not None
        view = await store.read(GROUP)
        _, alone = control.alter_set(view, ids[0], leases[0], frozenset(ids[:1]))
        await store.revoke(leases[0])
        state = await elect(store, ids[1], leases[1])
        assert (state.epoch, state.in_sync, state.version) == (2, frozenset({ids[1]}), 3)
        assert await store.commit(GROUP, alone) is None
        view = await store.read(GROUP)
        assert view.state is not None
        assert view.state.value == state

    run(work)


def test_retiring_leaves_the_set_and_a_new_epoch(run: Runner) -> None:
    """Goal: after a clean stop those in sync may be elected at once."""

    async def work(store: ControlStore) -> None:
        ids = [await join(store, name) for name in "ab"]
        leases = [await store.grant(5_000) for _ in ids]
        await elect(store, ids[0], leases[0])
        _, both = control.alter_set(await store.read(GROUP), ids[0], leases[0], frozenset(ids))
        assert await store.commit(GROUP, both) is not None
        _, gone = control.retire(await store.read(GROUP), ids[0], leases[0], preferred_id=ids[1])
        assert await store.commit(GROUP, gone) is not None
        view = await store.read(GROUP)
        assert view.state is not None
        assert view.state.value == GroupState(0, 2, frozenset(ids), 3, ids[1])
        assert view.master is None
        assert (await elect(store, ids[1], leases[1])).epoch == 3

    run(work)


def test_a_lease_that_is_kept_alive_holds_and_one_that_is_not_ends(run: Runner) -> None:
    """Goal: keys of a silent broker go by themselves, not before the lease's time."""

    async def work(store: ControlStore) -> None:
        kept, left = await store.grant(3_000), await store.grant(3_000)
        for broker_id, lease_id in ((1, kept), (2, left)):
            report = AliveReport("x", 10 * broker_id, 1)
            assert await store.commit(GROUP, control.report_alive(broker_id, report, lease_id)) is not None
        view = await store.read(GROUP)
        assert {number: item.value.log_end for number, item in view.alive.items()} == {1: 10, 2: 20}
        async with asyncio.timeout(30):
            while set((await store.read(GROUP)).alive) != {1}:
                await store.keep_alive(kept)
                await asyncio.sleep(0.3)
        with pytest.raises(LeaseLostError):
            await store.keep_alive(left)
        with pytest.raises(LeaseLostError):
            await store.commit(GROUP, control.report_alive(2, AliveReport("x", 1, 1), left))
        await store.keep_alive(kept)
        await store.revoke(kept)
        await store.revoke(kept)
        assert dict((await store.read(GROUP)).alive) == {}

    run(work)


def test_a_change_is_told_to_those_who_wait(run: Runner) -> None:
    """Goal: also one that came before the wait began; changes of other groups are not told."""

    async def work(store: ControlStore) -> None:
        view = await store.read(GROUP)
        assert not await store.wait_for_change(GROUP, view.revision, 200)
        other = Group(GROUP.cluster, GROUP.broker_name + "0")
        await store.commit(other, Transaction((), (Put("last_id", b"1"),)))
        assert not await store.wait_for_change(GROUP, view.revision, 200)
        waiting = asyncio.create_task(store.wait_for_change(GROUP, view.revision, 20_000))
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await join(store, "a")
        assert await waiting
        assert await store.wait_for_change(GROUP, view.revision, 20_000)
        assert (await store.read(other)).last_id is not None

    run(work)


def test_a_transaction_is_made_whole_or_not_at_all(run: Runner) -> None:
    """Goal: one comparison that fails undoes the whole; deletions are part of it."""

    async def work(store: ControlStore) -> None:
        first = await store.commit(GROUP, Transaction((("last_id", 0),), (Put("last_id", b"5"),)))
        assert first is not None
        mixed = Transaction((("last_id", first), ("state", 99)), (Put("last_id", b"6"),), ("master",))
        assert await store.commit(GROUP, mixed) is None
        view = await store.read(GROUP)
        assert view.last_id is not None
        assert (view.last_id.value, view.last_id.revision) == (5, first)
        assert await store.commit(GROUP, Transaction((("last_id", first),), (), ("last_id",))) is not None
        assert (await store.read(GROUP)).last_id is None

    run(work)


@asynccontextmanager
async def opened(config: EtcdConfig) -> Any:
    store = EtcdControl(config)
    try:
        yield store
    finally:
        await store.close()


def in_time(work: Awaitable[None]) -> None:
    async def whole() -> None:
        async with asyncio.timeout(HANG_S):
            await work

    asyncio.run(whole())
