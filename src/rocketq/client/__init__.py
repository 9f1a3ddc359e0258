"""The client: asyncio first, with a facade of the same shape for everybody else."""

from rocketq.client.aio import AsyncAdmin, Puller, PullResult, PullStatus, Sender, Session, SessionConfig
from rocketq.client.core.messages import Message, SendResult, SendStatus
from rocketq.client.core.progress import GroupStatus, QueueLag
from rocketq.client.core.resets import OffsetChange, ResetTo
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.errors import (
    ClientClosedError,
    ClientError,
    GroupOnlineError,
    GroupTakenError,
    MessageInvalidError,
    NoQueueError,
    NotARequestError,
    NotFoundError,
    PartlyFailedError,
)
from rocketq.client.sync import Admin

__all__ = [
    "Admin",
    "AsyncAdmin",
    "ClientClosedError",
    "ClientError",
    "GroupOnlineError",
    "GroupStatus",
    "GroupTakenError",
    "Message",
    "MessageInvalidError",
    "NoQueueError",
    "NotARequestError",
    "NotFoundError",
    "OffsetChange",
    "PartlyFailedError",
    "PullResult",
    "PullStatus",
    "Puller",
    "QueueLag",
    "ResetTo",
    "SendResult",
    "SendStatus",
    "Sender",
    "Session",
    "SessionConfig",
    "StoredMessage",
]
