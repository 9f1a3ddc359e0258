"""Promotion and truncation, step by step. Each may be cut off by a crash at any `yield`; doing it again ends the same.

The order is the whole point, so it stands here alone, over a small port that stores and simulations both have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Protocol

from rocketq.replication.epochs import EpochList
from rocketq.replication.ha_state import HaState


class ReplicaStore(Protocol):
    """What a replica keeps: its log with everything derived from it, its epochs, its state."""

    @property
    def log_start(self) -> int: ...

    @property
    def log_end(self) -> int: ...

    def load_epochs(self) -> EpochList: ...

    def save_epochs(self, epochs: EpochList) -> None:
        """Synced, file and directory."""
        ...

    def load_state(self) -> HaState: ...

    def save_state(self, state: HaState) -> None:
        """Synced, file and directory."""
        ...

    def stop_dispatch(self) -> None:
        """Nothing more becomes visible, nobody writes."""
        ...

    def cut(self, point: int) -> int:
        """Queues, index, log, in this order; the tail zeroed and synced. The boundary at or before `point`."""
        ...

    def sync(self) -> None:
        """The whole log is on disk, also what an earlier process wrote."""
        ...

    def finish_dispatch(self) -> None:
        """Queues and index have everything of the log; queue offsets go on behind it."""
        ...


def truncate(store: ReplicaStore, point: int) -> Iterator[str]:
    """Cut a replica back to `point`."""
    yield "mark"
    store.save_state(replace(store.load_state(), truncating_to=point))
    yield "stop dispatch"
    store.stop_dispatch()
    yield "cut"
    end = store.cut(point)
    yield "epochs"
    epochs = store.load_epochs()
    if epochs.cut(end):
        store.save_epochs(epochs)
    yield "dispatch"
    store.finish_dispatch()
    yield "clear the mark"
    store.save_state(replace(store.load_state(), truncating_to=None))


def recover(store: ReplicaStore) -> Iterator[str]:
    """After any start: a truncation under way is finished, epochs without data go, and what is there is on disk: only
    then may this replica say that it has it."""
    pending = store.load_state().truncating_to
    if pending is not None:
        yield from truncate(store, min(pending, store.log_end))
    yield "sync"
    store.sync()
    yield "epochs"
    epochs = store.load_epochs()
    if epochs.cut(store.log_end):
        store.save_epochs(epochs)


def promote(store: ReplicaStore, epoch: int) -> Iterator[str]:
    """The log becomes writable in `epoch`, from its end on. What a log holds from before it had replicas belongs to its
    first epoch."""
    yield "epoch"
    state = store.load_state()
    if state.epoch < epoch:
        store.save_state(replace(state, epoch=epoch))
    yield "sync"
    store.sync()
    yield "epochs"
    epochs = store.load_epochs()
    epochs.cut(store.log_end)
    epochs.add(epoch, store.log_end if len(epochs) else store.log_start)
    store.save_epochs(epochs)
    yield "dispatch"
    store.finish_dispatch()
