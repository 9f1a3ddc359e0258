"""Files of a replica (haState and epochs) and its store behind the interface of recovery."""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

from rocketq.errors import DamagedStateError, ProtocolError, StoreError
from rocketq.replication.agent import LogEnds
from rocketq.replication.epochs import EPOCH_FILE, EpochList, LogShape, decode_epochs, encode_epochs
from rocketq.replication.recovery import HA_STATE_FILE, HaState, decode_ha_state, encode_ha_state
from rocketq.store import StoreConfig, StoreReplica
from rocketq.store.disk import Disk

_ASIDE: Final = "put-aside-"
_RESERVE: Final = "haReserve"
_RESERVE_BYTES: Final = 256 << 10
_STAYS: Final = frozenset({"config", "lock", HA_STATE_FILE})


class FencedStore:
    """An open store with epochs and state. Every save syncs file and directory.

    Steps that wait for the disk (truncation, promotion) run on a worker thread, one at a time, between `begin_change`
    and `end_change`; the event loop persists epochs seen meanwhile.

    A damaged file is not replaced by its backup: an older epoch list would attribute bytes to the wrong master, and an
    older epoch would break the fence.
    """

    def __init__(self, store: StoreReplica, cluster: str, broker_name: str) -> None:
        self.store = store
        self._is_changing = False
        self._state_lock = threading.RLock()
        root = store.config.root
        self._epoch_path, self._state_path = root / EPOCH_FILE, root / HA_STATE_FILE
        self._reserve_path = root / _RESERVE
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

    def keep_reserve(self) -> None:
        """Hold disk space for haState and the epochs: a full disk must not keep a master from stepping down."""
        if self._reserve_path.exists():
            return
        try:
            with open(self._reserve_path, "wb") as file:
                os.posix_fallocate(file.fileno(), 0, _RESERVE_BYTES)
        except OSError:
            self._reserve_path.unlink(missing_ok=True)

    def _save(self, path: Path, data: bytes) -> None:
        """Replace a file, synced; on a full disk once more with the reserved space."""
        try:
            self.store.save_file(path, data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._reserve_path.exists():
                raise
            self._reserve_path.unlink()
            self.store.save_file(path, data)

    def begin_change(self) -> None:
        self._is_changing = True

    def end_change(self) -> None:
        self._is_changing = False

    # reading

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

    def digest(self, ranges: Sequence[tuple[int, int]]) -> bytes:
        """SHA-256 of each range (offset, length), concatenated. StoreError when bytes are gone. Reads from disk."""
        digests = []
        for start, length in ranges:
            hashed, at, end = sha256(), start, start + length
            while at < end:
                piece = self.store.raw_range(at, end - at)
                if not piece:
                    raise StoreError(f"the log has no bytes at {at}")
                hashed.update(piece)
                at += len(piece)
            digests.append(hashed.digest())
        return b"".join(digests)

    # saving

    def save_epochs(self, epochs: EpochList) -> None:
        if self._epoch_path.exists():
            spare = self._epoch_path.with_name(self._epoch_path.name + ".bak.tmp")
            spare.unlink(missing_ok=True)
            os.link(self._epoch_path, spare)
            os.replace(spare, self._epoch_path.with_name(self._epoch_path.name + ".bak"))
        self._save(self._epoch_path, encode_epochs(epochs))
        self._epochs = epochs.copy()

    def save_state(self, state: HaState) -> None:
        """Save, keeping a larger epoch that another thread saved meanwhile."""
        with self._state_lock:
            known = getattr(self, "_state", state)
            state = replace(state, broker_id=state.broker_id or known.broker_id, epoch=max(state.epoch, known.epoch))
            self._save(self._state_path, encode_ha_state(state))
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

    def drop_deleted_epochs(self) -> None:
        """Drop epochs whose data was deleted."""
        if self._is_changing:
            return
        epochs = self._epochs.copy()
        if epochs.drop_before(self.store.log_start):
            self.save_epochs(epochs)

    def start_at(self, offset: int) -> None:
        """Start an empty log at the master's start offset."""
        if offset != self.store.log_end:
            self.store.start_at(offset)
        if len(self._epochs):
            self.save_epochs(EpochList())

    def stop_dispatch(self) -> None:
        """Nothing to do: records are dispatched while they are copied, and the stream is stopped."""

    def cut(self, point: int) -> int:
        return self.store.truncate_to(point)

    def finish_dispatch(self) -> None:
        """Nothing to do: records were dispatched while they were copied."""

    def sync(self) -> None:
        self.store.sync_last_files()


def move_store_aside(config: StoreConfig, now_ms: int) -> Path:
    """Move the files of a closed store into a subdirectory; identity and broker tables stay."""
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
        f"{path} is damaged ({error}). Empty the data directory to copy everything from the master"
    )
