"""What the package is for others; `from rocketq.client import …` finds it here."""

from rocketq.client.aio import (
    AsyncAdmin,
    AsyncProducer,
    AsyncPullConsumer,
    AsyncPushConsumer,
    FileOffsets,
    MemoryOffsets,
    OffsetStore,
    Puller,
    PullResult,
    PullStatus,
    QueueHealth,
    RemoteOffsets,
    Sender,
    Session,
    SessionConfig,
    SessionHealth,
)
from rocketq.client.aio.pull_consumer import NotAssignedError, OffsetOutOfRangeError
from rocketq.client.core.allocation import (
    AllocationStrategy,
    Averagely,
    ByCircle,
    ByConsistentHash,
    ByMachineRoom,
    Fixed,
    NearbyRooms,
)
from rocketq.client.core.batches import Batching
from rocketq.client.core.consume_hooks import ConsumeEvent, ConsumeHook, PullFilter
from rocketq.client.core.consume_results import ConsumeContext, ConsumeOutcome, ConsumeResult
from rocketq.client.core.consumer_config import PullConfig, PushConfig
from rocketq.client.core.fault_latency import FaultLatencyConfig
from rocketq.client.core.hooks import SendContext, SendHook, SendMode, SendOutcome
from rocketq.client.core.messages import Message
from rocketq.client.core.producer_config import ProducerConfig
from rocketq.client.core.progress import GroupStatus, QueueLag
from rocketq.client.core.pull_window import PullWindow
from rocketq.client.core.resets import OffsetChange, ResetTo
from rocketq.client.core.send_results import SendResult, SendStatus, TransactionResult
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscription_table import SubscriptionInvalidError
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
    RecallHandleError,
    ReplyTimeoutError,
    SelectorError,
    SendFailedError,
    SendTimeoutError,
    TooManySendsError,
    WrongLoopError,
)
from rocketq.client.sync import Admin, Producer, PullConsumer, PushConsumer
from rocketq.protocol.acl import Credentials
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import AclDenied, BrokerError
from rocketq.protocol.flags import ConsumeFromWhere, MessageModel, TransactionState

__all__ = [
    "AclDenied",
    "Admin",
    "AllocationStrategy",
    "AsyncAdmin",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "Averagely",
    "BatchFailedError",
    "Batching",
    "BrokerError",
    "ByCircle",
    "ByConsistentHash",
    "ByMachineRoom",
    "ClientClosedError",
    "ClientError",
    "ConsumeContext",
    "ConsumeEvent",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumeOutcome",
    "ConsumeResult",
    "Credentials",
    "FaultLatencyConfig",
    "FileOffsets",
    "Fixed",
    "GroupOnlineError",
    "GroupStatus",
    "GroupTakenError",
    "MemoryOffsets",
    "Message",
    "MessageInvalidError",
    "MessageModel",
    "MessageQueue",
    "NearbyRooms",
    "NoQueueError",
    "NotARequestError",
    "NotAssignedError",
    "NotFoundError",
    "NotStartedError",
    "OffsetChange",
    "OffsetOutOfRangeError",
    "OffsetStore",
    "PartlyFailedError",
    "Producer",
    "ProducerConfig",
    "PullConfig",
    "PullConsumer",
    "PullFilter",
    "PullResult",
    "PullStatus",
    "PullWindow",
    "Puller",
    "PushConfig",
    "PushConsumer",
    "QueueHealth",
    "QueueLag",
    "RecallHandleError",
    "RemoteOffsets",
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
    "SubscriptionInvalidError",
    "TooManySendsError",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "WrongLoopError",
]
