"""Durable state of a replica, and the steps of recovery, truncation and promotion.

A crash may interrupt the steps at any `yield`; running them again gives the same end state. They run over a small
interface that real stores and the simulator implement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final, Protocol
from zlib import crc32

from rocketq.errors import ProtocolError
from rocketq.replication.epochs import EpochList

HA_STATE_FILE: Final = "haState"


@dataclass(frozen=True, slots=True, kw_only=True)
class HaState:
    cluster: str
    broker_name: str
    check_code: str
    """Random value created once per store; an id is valid only with it."""
    broker_id: int = 0
    """0: none granted yet."""
    epoch: int = 0
    truncating_to: int | None = None
    """A truncation to this offset is in progress; a start completes it first."""

    def __post_init__(self) -> None:
        if not (self.cluster and self.broker_name and self.check_code):
            raise ProtocolError("a replica needs cluster, brokerName and check code")
        if self.broker_id < 0 or self.epoch < 0 or (self.truncating_to or 0) < 0:
            raise ProtocolError("a replica's id, epoch and offsets cannot be negative")

    def with_seen(self, broker_id: int, epoch: int) -> HaState:
        """With this id, and the larger of both epochs."""
        return replace(self, broker_id=broker_id, epoch=max(self.epoch, epoch))


def encode_ha_state(state: HaState) -> bytes:
    """JSON on one line, its CRC32 on the next."""
    text = json.dumps(asdict(state), sort_keys=True).encode()
    return text + b"\n%d\n" % crc32(text)


def decode_ha_state(data: bytes) -> HaState:
    """ProtocolError for an invalid or incomplete state."""
    text, _, crc = data.rstrip(b"\n").rpartition(b"\n")
    try:
        if int(crc) != crc32(text):
            raise ProtocolError("the state of this replica does not match its checksum")
        fields = json.loads(text)
        return HaState(**fields)
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"not the state of a replica: {error}") from None


class ReplicaStore(Protocol):
    """Storage of a replica: log and derived files, epochs, state."""

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
        """Stop dispatch; there are no writers at this point."""
        ...

    def cut(self, point: int) -> int:
        """Truncate queues, index and log, in this order, and sync. Returns the record boundary at or before `point`."""
        ...

    def sync(self) -> None:
        """Sync the whole log, including bytes that an earlier process wrote."""
        ...

    def finish_dispatch(self) -> None:
        """Dispatch the rest of the log to queues and index."""
        ...


def truncate(store: ReplicaStore, point: int) -> Iterator[str]:
    """Truncate a replica to `point`."""
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
    """Recover after any start: complete a pending truncation, sync the log, drop epochs without data. A replica may
    acknowledge its log only after this."""
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
    """Make the log writable in `epoch`, from its end. Data from before the log had replicas belongs to its first
    epoch."""
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
