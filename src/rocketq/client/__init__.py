"""The client: asyncio first, with a facade of the same shape for everybody else."""

from rocketq.client.aio import (
    AsyncAdmin,
    AsyncProducer,
    Puller,
    PullResult,
    PullStatus,
    Sender,
    Session,
    SessionConfig,
    SessionHealth,
)
from rocketq.client.core.batches import Batching
from rocketq.client.core.fault_latency import FaultLatencyConfig
from rocketq.client.core.hooks import SendContext, SendHook, SendMode, SendOutcome
from rocketq.client.core.messages import Message
from rocketq.client.core.producer_config import ProducerConfig
from rocketq.client.core.progress import GroupStatus, QueueLag
from rocketq.client.core.resets import OffsetChange, ResetTo
from rocketq.client.core.send_results import SendResult, SendStatus, TransactionResult
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.transactions import TransactionListener
from rocketq.client.errors import (
    BatchFailedError,
    ClientClosedError,
    ClientError,
    GroupOnlineError,
    GroupTakenError,
    MessageInvalidError,
    NoQueueError,
    NotARequestError,
    NotFoundError,
    NotStartedError,
    PartlyFailedError,
    ReplyTimeoutError,
    SelectorError,
    SendFailedError,
    SendTimeoutError,
    TooManySendsError,
    WrongLoopError,
)
from rocketq.client.sync import Admin, Producer
from rocketq.protocol.acl import Credentials
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import AclDenied, BrokerError
from rocketq.protocol.flags import TransactionState

__all__ = [
    "AclDenied",
    "Admin",
    "AsyncAdmin",
    "AsyncProducer",
    "BatchFailedError",
    "Batching",
    "BrokerError",
    "ClientClosedError",
    "ClientError",
    "Credentials",
    "FaultLatencyConfig",
    "GroupOnlineError",
    "GroupStatus",
    "GroupTakenError",
    "Message",
    "MessageInvalidError",
    "MessageQueue",
    "NoQueueError",
    "NotARequestError",
    "NotFoundError",
    "NotStartedError",
    "OffsetChange",
    "PartlyFailedError",
    "Producer",
    "ProducerConfig",
    "PullResult",
    "PullStatus",
    "Puller",
    "QueueLag",
    "ReplyTimeoutError",
    "ResetTo",
    "SelectorError",
    "SendContext",
    "SendFailedError",
    "SendHook",
    "SendMode",
    "SendOutcome",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
    "Sender",
    "Session",
    "SessionConfig",
    "SessionHealth",
    "StoredMessage",
    "TooManySendsError",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "WrongLoopError",
]
