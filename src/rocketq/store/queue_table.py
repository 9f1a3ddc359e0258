"""All consume queues of the store."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from rocketq.store.config import StoreConfig
from rocketq.store.consume_queue import ConsumeQueue
from rocketq.store.disk import Disk
from rocketq.store.queue_extensions import StoreExtensions

QUEUE_ID_MAX = 0xFFFF  # a damaged record must not make a directory for every number there is


class QueueTable:
    """Queues by topic and id; new ones come to be with their first message. `removed` is called when one goes."""

    def __init__(self, config: StoreConfig, disk: Disk, removed: Callable[[], None] = lambda: None) -> None:
        self._config = config
        self._disk = disk
        self._removed = removed
        self.path = config.root / "consumequeue"
        self.extensions = StoreExtensions(config, disk)
        self._queues: dict[tuple[str, int], ConsumeQueue] = {}
        self.removed_count = 0
        """So that whoever remembers queues knows when to look again."""

    def load(self) -> None:
        """Find the queues on disk; directories that are not numbers are not queues."""
        if not self.path.is_dir():
            return
        for topic_dir in sorted(path for path in self.path.iterdir() if path.is_dir()):
            for queue_dir in topic_dir.iterdir():
                if queue_dir.name.isdigit() and queue_dir.is_dir():
                    queue = self._make(topic_dir.name, int(queue_dir.name))
                    queue.files.load()

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, topic: str, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def find_or_make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = self._queues.get((topic, queue_id))
        return queue if queue is not None else self._make(topic, queue_id)

    def of_topic(self, topic: str) -> list[ConsumeQueue]:
        return sorted((queue for queue in self if queue.topic == topic), key=lambda queue: queue.queue_id)

    def topics(self) -> list[str]:
        return sorted({queue.topic for queue in self})

    def remove(self, queue: ConsumeQueue) -> None:
        queue.remove()
        del self._queues[queue.topic, queue.queue_id]
        self.removed_count += 1
        self._removed()
        topic_dir = queue.files.path.parent
        if topic_dir.is_dir() and not any(topic_dir.iterdir()):
            os.rmdir(topic_dir)

    def _make(self, topic: str, queue_id: int) -> ConsumeQueue:
        queue = ConsumeQueue(topic, queue_id, self._path_of(topic, queue_id), self._config.queue_file_bytes, self._disk)
        queue.tail.extensions = self.extensions.of(topic, queue_id, queue.last_address)
        queue.tail.extends = self.extensions.are_written
        self._queues[topic, queue_id] = queue
        return queue

    def begin(self) -> None:
        """The store is open: from now on new units are extended, where that is wanted."""
        self.extensions.begin()
        for queue in self:
            queue.tail.extends = self.extensions.are_written

    def _path_of(self, topic: str, queue_id: int) -> Path:
        return self.path / topic / str(queue_id)
