"""The broker's state files in config/: JSON in Apache's shapes, with a backup beside each."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Generic, TypeVar

from rocketq.errors import DamagedStateError, ProtocolError, StoreError
from rocketq.protocol.bodies.groups import ConsumerFilterTable, GroupConfigTable
from rocketq.protocol.bodies.json_body import Body
from rocketq.protocol.bodies.offsets import ConsumerOffsets, DelayOffsets
from rocketq.protocol.bodies.topics import TopicConfigTable
from rocketq.protocol.fastjson import dumps
from rocketq.store.disk import Disk

log = logging.getLogger(__name__)

State = TypeVar("State", bound=Body)


class StateFile(Generic[State]):
    """One file. What could not be loaded is never overwritten: a broker that starts on a damaged file must not make
    the loss final."""

    def __init__(self, path: Path, kind: type[State], disk: Disk) -> None:
        self.path = path
        self._kind = kind
        self._disk = disk
        self._loaded = False
        self._file_is_good = True  # a damaged file must not become the backup of a good one

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def load(self) -> State:
        """The state, from the backup when the file is missing or unreadable; an empty one when there is neither."""
        troubles = []
        for path in (self.path, self.backup):
            try:
                data = path.read_bytes()
                if not data.strip():
                    raise StoreError("it is empty")
                state = self._kind.decode(data)
            except FileNotFoundError:
                continue
            except (ProtocolError, StoreError, OSError) as error:
                troubles.append(f"{path}: {error}")
                continue
            self._file_is_good = not troubles
            if troubles:
                log.warning("%s; the backup is used instead", troubles[0])
            self._loaded = True
            return state
        if troubles:
            raise DamagedStateError(
                "cannot be read: " + "; ".join(troubles) + ". Nothing was changed; repair or remove the file"
            )
        self._loaded = True
        return self._kind()

    def save(self, state: State) -> None:
        self.write(dumps(state.to_json(), pretty=True))

    def write(self, data: bytes) -> None:
        """Replace the file in one step; what it held before becomes the backup."""
        if not self._loaded:
            raise StoreError(f"{self.path} was not loaded, so it is not saved")
        if self.path.exists() and self._file_is_good:
            spare = self.backup.with_name(self.backup.name + ".tmp")
            spare.unlink(missing_ok=True)
            os.link(self.path, spare)
            os.replace(spare, self.backup)
        self._disk.replace(self.path, data)
        self._file_is_good = True


class StateFiles:
    """The five tables that every broker keeps."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        config, disk = root / "config", disk or Disk()
        self.topics = StateFile(config / "topics.json", TopicConfigTable, disk)
        self.groups = StateFile(config / "subscriptionGroup.json", GroupConfigTable, disk)
        self.consumer_offsets = StateFile(config / "consumerOffset.json", ConsumerOffsets, disk)
        self.delay_offsets = StateFile(config / "delayOffset.json", DelayOffsets, disk)
        self.consumer_filters = StateFile(config / "consumerFilter.json", ConsumerFilterTable, disk)
