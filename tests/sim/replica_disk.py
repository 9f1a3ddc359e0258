"""A replica's disk in memory: a log that loses what was not synced, an epoch file, a state file."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rocketq.replication.epochs import EpochList, LogShape, decode_epochs, encode_epochs
from rocketq.replication.recovery import HaState, decode_ha_state, encode_ha_state

RECORD_BYTES = 16


def record(message_id: int, queue_offset: int) -> bytes:
    """What stands for a message: all records have one size, so boundaries are multiples of it."""
    return message_id.to_bytes(8, "big") + queue_offset.to_bytes(8, "big")


@dataclass
class ReplicaDisk:
    """Also the ReplicaStore that promotion and truncation work on."""

    state_file: bytes
    start: int = 0
    log: bytearray = field(default_factory=bytearray)
    """From `start` on, as the system's cache has it."""
    durable: int = 0
    """What a power cut leaves: a position in the log."""
    epoch_file: bytes = encode_epochs(EpochList())
    dispatching: bool = True
    _parsed: tuple[bytes, EpochList] = (b"", EpochList())

    @classmethod
    def new(cls, number: int) -> ReplicaDisk:
        state = HaState(cluster="c", broker_name="b", check_code=f"disk-{number}")
        return cls(encode_ha_state(state))

    # the process's view

    @property
    def log_start(self) -> int:
        return self.start

    @property
    def log_end(self) -> int:
        return self.start + len(self.log)

    @property
    def shape(self) -> LogShape:
        if self._parsed[0] != self.epoch_file:
            self._parsed = (self.epoch_file, self.load_epochs())
        return LogShape(self.start, self.log_end, self._parsed[1])

    def read(self, low: int, high: int) -> bytes:
        return bytes(self.log[low - self.start : high - self.start])

    def append(self, data: bytes) -> None:
        assert self.dispatching
        self.log += data

    def begin_at(self, offset: int) -> None:
        assert not self.log
        self.start = self.durable = offset
        self.save_epochs(EpochList())

    def drop_before(self, offset: int) -> None:
        """Retention."""
        if self.start < offset <= self.log_end:
            del self.log[: offset - self.start]
            self.start, self.durable = offset, max(self.durable, offset)
            epochs = self.load_epochs()
            epochs.drop_before(offset)
            self.save_epochs(epochs)

    # ReplicaStore

    def load_epochs(self) -> EpochList:
        return decode_epochs(self.epoch_file)

    def save_epochs(self, epochs: EpochList) -> None:
        self.epoch_file = encode_epochs(epochs)

    def load_state(self) -> HaState:
        return decode_ha_state(self.state_file)

    def save_state(self, state: HaState) -> None:
        self.state_file = encode_ha_state(state)

    def stop_dispatch(self) -> None:
        self.dispatching = False

    def cut(self, point: int) -> int:
        end = max(self.start, point - (point - self.start) % RECORD_BYTES)
        del self.log[end - self.start :]
        self.durable = self.log_end
        return self.log_end

    def sync(self) -> None:
        self.durable = self.log_end

    def finish_dispatch(self) -> None:
        self.dispatching = True

    # faults

    def lose_power(self, rng: random.Random) -> None:
        """Anything behind the durable end may be gone, in the middle of a record too; recovery drops such a rest."""
        kept = rng.randint(self.durable, self.log_end)
        del self.log[kept - self.start :]
        self.recover_tail()

    def recover_tail(self) -> None:
        del self.log[len(self.log) - len(self.log) % RECORD_BYTES :]
        self.dispatching = True

    def seen(self, broker_id: int, epoch: int) -> None:
        self.save_state(self.load_state().with_seen(broker_id, epoch))


def run_steps(steps: Iterator[str], stop_before: int | None = None) -> bool:
    """Do steps; with `stop_before` the crash comes right before that one. Whether all were done."""
    return all(number != stop_before for number, _ in enumerate(steps))


def copied(disk: ReplicaDisk) -> ReplicaDisk:
    return replace(disk, log=bytearray(disk.log), _parsed=(b"", EpochList()))
