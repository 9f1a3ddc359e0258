"""Files out of the page cache, and back page by page: what tests of reads from disk share."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import pytest

import rocketq.kernel
from rocketq.broker import Broker
from rocketq.kernel.buffers import MappedBuffer
from rocketq.kernel.residency import ResidentPages
from rocketq.store import Store

KNOWS_PAGES = rocketq.kernel.compiled and hasattr(os, "posix_fadvise")
"""Whether the kernel can ask the system; where it cannot, far records count as not resident."""


def is_resident(buffer: MappedBuffer, at: int = 0, count: int | None = None) -> bool:
    return bool(ResidentPages().covers(buffer, at, buffer.size - at if count is None else count))


def drop(path: Path, mapped: MappedBuffer | None = None) -> None:
    """Take a file out of the page cache; the mapping goes on, with its pages on disk."""
    if not hasattr(os, "posix_fadvise"):
        pytest.skip("the system takes no advice about pages")
    if mapped is not None and isinstance(pages := mapped.memory.obj, mmap.mmap):
        pages.madvise(mmap.MADV_DONTNEED)
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
    if KNOWS_PAGES and mapped is not None and is_resident(mapped, 0, 1):
        pytest.skip("this file system keeps all pages in memory")


def fetch_page(path: Path, at: int) -> None:
    """Have the one page with this byte in the page cache."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_RANDOM)
        os.pread(handle, 1, at)
    finally:
        os.close(handle)


def drop_messages(broker: Broker) -> None:
    """All pages of the log, and what the broker knows of them."""
    drop_log(broker.parts.store)
    for fast_path in broker.fast_paths:
        fast_path.forget_pages()


def drop_log(store: Store) -> None:
    for base in store.log.files:
        drop(store.log.files.path_of(base), store.log.segment(base))


def drop_queue(store: Store, topic: str, queue_id: int = 0) -> None:
    queue = store.queues.get(topic, queue_id)
    assert queue is not None
    for start in queue.files:
        drop(queue.files.path_of(start), queue.file_at(start // 20))
