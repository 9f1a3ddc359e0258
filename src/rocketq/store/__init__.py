"""The message store: commit log, consume queues and index in files that Apache RocketMQ reads and writes too."""

from rocketq.store.config import FlushType, StoreConfig
from rocketq.store.interfaces import StoreReader, StoreReplica, StoreWriter
from rocketq.store.results import AppendResult, AppendStatus, QueryResult, ReadResult, ReadStatus
from rocketq.store.state_files import StateFile, StateFiles
from rocketq.store.store import Store, tag_code

__all__ = [
    "AppendResult",
    "AppendStatus",
    "FlushType",
    "QueryResult",
    "ReadResult",
    "ReadStatus",
    "StateFile",
    "StateFiles",
    "Store",
    "StoreConfig",
    "StoreReader",
    "StoreReplica",
    "StoreWriter",
    "tag_code",
]
