"""What the package is for others; `from rocketq.client.aio import …` finds it here."""

from rocketq.client.aio.admin import AsyncAdmin
from rocketq.client.aio.health import SessionHealth
from rocketq.client.aio.offset_store import FileOffsets, MemoryOffsets, OffsetStore, RemoteOffsets
from rocketq.client.aio.producer import AsyncProducer
from rocketq.client.aio.pull_consumer import AsyncPullConsumer
from rocketq.client.aio.puller import Puller, PullResult, PullStatus
from rocketq.client.aio.push_consumer import AsyncPushConsumer, QueueHealth
from rocketq.client.aio.sender import Sender
from rocketq.client.aio.session import Session, SessionConfig

__all__ = [
    "AsyncAdmin",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "FileOffsets",
    "MemoryOffsets",
    "OffsetStore",
    "PullResult",
    "PullStatus",
    "Puller",
    "QueueHealth",
    "RemoteOffsets",
    "Sender",
    "Session",
    "SessionConfig",
    "SessionHealth",
]
