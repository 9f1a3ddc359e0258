"""A replica's own two files beside its log, and its store as promotion and truncation want it."""

from __future__ import annotations

import os
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Final

from rocketq.errors import DamagedStateError, ProtocolError
from rocketq.replication import epochs as epoch_list
from rocketq.replication import ha_state
from rocketq.replication.agent import LogEnds
from rocketq.replication.epochs import EpochList, decode_epochs, encode_epochs
from rocketq.replication.ha_state import HaState, decode_ha_state, encode_ha_state
from rocketq.replication.rejoin import LogShape
from rocketq.store import StoreConfig, StoreReplica
from rocketq.store.disk import Disk

_ASIDE: Final = "put-aside-"
_STAYS: Final = frozenset({"config", "lock", ha_state.FILE_NAME})


class FencedStore:
    """An open store with its epochs and its state. Every save is synced, file and directory.

    Steps that wait for the disk (a truncation, a promotion) run on a thread of their own, one at a time, between
    `begin_change` and `end_change`; epochs seen meanwhile are kept by the event loop's.

    A damaged file is not replaced by its backup: an older list would take bytes of one master for those of another, an
    older epoch would undo a promise.
    """

    def __init__(self, store: StoreReplica, cluster: str, broker_name: str) -> None:
        self.store = store
        self._is_changing = False
        self._state_lock = threading.RLock()
        root = store.config.root
        self._epoch_path, self._state_path = root / epoch_list.FILE_NAME, root / ha_state.FILE_NAME
        self._epochs = self._read_epochs()
        self._state = self._read_state(cluster, broker_name)

    def _read_epochs(self) -> EpochList:
        try:
            return decode_epochs(self._epoch_path.read_bytes())
        except FileNotFoundError:
            return EpochList()
        except ProtocolError as error:
            raise _damaged(self._epoch_path, error) from None

    def _read_state(self, cluster: str, broker_name: str) -> HaState:
        try:
            state = decode_ha_state(self._state_path.read_bytes())
        except FileNotFoundError:
            state = HaState(cluster=cluster, broker_name=broker_name, check_code=uuid.uuid4().hex)
            self.save_state(state)
            return state
        except ProtocolError as error:
            raise _damaged(self._state_path, error) from None
        if (state.cluster, state.broker_name) != (cluster, broker_name):
            raise DamagedStateError(
                f"{self._state_path} is of {state.cluster}/{state.broker_name}, not of {cluster}/{broker_name}"
            )
        return state

    def begin_change(self) -> None:
        self._is_changing = True

    def end_change(self) -> None:
        self._is_changing = False

    # what it has

    @property
    def log_start(self) -> int:
        return self.store.log_start

    @property
    def log_end(self) -> int:
        return self.store.log_end

    @property
    def shape(self) -> LogShape:
        return LogShape(self.store.log_start, self.store.log_end, self._epochs)

    @property
    def ends(self) -> LogEnds:
        last = self._epochs.last
        end = self.store.log_end
        return LogEnds(end, min(self.store.flushed_to, end), last.number if last else 0)

    def load_epochs(self) -> EpochList:
        return self._epochs.copy()

    def load_state(self) -> HaState:
        return self._state

    # what it keeps

    def save_epochs(self, epochs: EpochList) -> None:
        if self._epoch_path.exists():
            spare = self._epoch_path.with_name(self._epoch_path.name + ".bak.tmp")
            spare.unlink(missing_ok=True)
            os.link(self._epoch_path, spare)
            os.replace(spare, self._epoch_path.with_name(self._epoch_path.name + ".bak"))
        self.store.save_file(self._epoch_path, encode_epochs(epochs))
        self._epochs = epochs.copy()

    def save_state(self, state: HaState) -> None:
        """Another thread may have seen a larger epoch since `state` was loaded: that is never taken back."""
        with self._state_lock:
            known = getattr(self, "_state", state)
            state = replace(state, broker_id=state.broker_id or known.broker_id, epoch=max(state.epoch, known.epoch))
            self.store.save_file(self._state_path, encode_ha_state(state))
            self._state = state

    def see(self, broker_id: int, epoch: int) -> None:
        with self._state_lock:
            seen = self._state.with_seen(broker_id, epoch)
            if seen != self._state:
                self.save_state(seen)

    def begin_epoch(self, number: int, start: int) -> None:
        epochs = self.load_epochs()
        epochs.add(number, start)
        self.save_epochs(epochs)

    def forget_deleted(self) -> None:
        """Epochs whose last byte was deleted."""
        if self._is_changing:
            return
        epochs = self._epochs.copy()
        if epochs.forget_before(self.store.log_start):
            self.save_epochs(epochs)

    def start_at(self, offset: int) -> None:
        """An empty log begins as a copy of the master's."""
        if offset != self.store.log_end:
            self.store.start_at(offset)
        if len(self._epochs):
            self.save_epochs(EpochList())

    def stop_dispatch(self) -> None:
        """Records are dispatched as they are copied; nobody copies meanwhile."""

    def cut(self, point: int) -> int:
        return self.store.truncate_to(point)

    def finish_dispatch(self) -> None:
        """Records were dispatched as they were copied; queues know their ends."""

    def sync(self) -> None:
        self.store.sync_last_files()


def put_aside(config: StoreConfig, now_ms: int) -> Path:
    """Move a closed store into a folder beside; who this replica is, and the broker's tables, stay."""
    aside = config.root / f"{_ASIDE}{now_ms}"
    aside.mkdir()
    if config.log_dir.parent != config.root and config.log_dir.exists():
        os.replace(config.log_dir, config.log_dir.with_name(f"{config.log_dir.name}-{aside.name}"))
    for child in sorted(config.root.iterdir()):
        if child.name not in _STAYS and not child.name.startswith(_ASIDE):
            os.replace(child, aside / child.name)
    Disk().sync_directory(aside)
    Disk().sync_directory(config.root)
    return aside


def _damaged(path: Path, error: Exception) -> DamagedStateError:
    return DamagedStateError(
        f"{path} cannot be read ({error}); nothing was changed. This replica may be emptied; it is copied anew then"
    )
