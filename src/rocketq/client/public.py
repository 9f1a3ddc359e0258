"""The public names, which `rocketq` and `rocketq.client` offer; for type checkers."""

from rocketq.client.admin import AsyncAdmin
from rocketq.client.admin.groups import GroupStatus, QueueLag
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
from rocketq.client.core.config import ProducerConfig, PullConfig, PullWindow, PushConfig
from rocketq.client.core.consume_results import (
    ConsumeContext,
    ConsumeEvent,
    ConsumeHook,
    ConsumeOutcome,
    ConsumeResult,
    PullFilter,
)
from rocketq.client.core.messages import Message
from rocketq.client.core.offsets import OffsetChange, ResetTo
from rocketq.client.core.routes import FaultLatencyConfig
from rocketq.client.core.send_flow import (
    SendContext,
    SendHook,
    SendMode,
    SendOutcome,
    SendResult,
    SendStatus,
    TransactionResult,
)
from rocketq.client.core.stored_messages import StoredMessage
from rocketq.client.core.subscriptions import SubscriptionInvalidError
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
from rocketq.client.fetcher import Puller, PullResult, PullStatus
from rocketq.client.message_batch import MessageBatch
from rocketq.client.offsets import FileOffsets, MemoryOffsets, OffsetFileError, OffsetStore, RemoteOffsets
from rocketq.client.producer import AsyncProducer
from rocketq.client.pull_consumer import AsyncPullConsumer, NotAssignedError, OffsetOutOfRangeError
from rocketq.client.push_consumer import AsyncPushConsumer, QueueHealth
from rocketq.client.send import Sender
from rocketq.client.send_many import SendManyResult
from rocketq.client.session import Session, SessionConfig, SessionHealth
from rocketq.client.sync.admin import Admin
from rocketq.client.sync.consumers import PullConsumer, PushConsumer
from rocketq.client.sync.producer import Producer
from rocketq.client.sync.shared import SharedSession
from rocketq.client.transactions import TransactionListener
from rocketq.errors import (
    ConfigError,
    ConnectionClosedError,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RemotingError,
    RequestTimeoutError,
    RocketQError,
    TlsError,
    TooManyRequestsError,
    UnreachableError,
)
from rocketq.protocol.acl import Credentials
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.failures import (
    AccessDeniedError,
    BrokerError,
    ConsumerNotOnlineError,
    FlowControlError,
    GroupNotFoundError,
    MessageIllegalError,
    NoPermissionError,
    ServiceNotAvailableError,
    SubscriptionRejectedError,
    SystemBusyError,
    TopicNotFoundError,
)
from rocketq.protocol.flags import ConsumeFromWhere, MessageModel, TransactionState
from rocketq.remoting.loops import run
from rocketq.remoting.tls import ClientTls

__all__ = [
    "AccessDeniedError",
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
    "ClientTls",
    "ConfigError",
    "ConnectionClosedError",
    "ConsumeContext",
    "ConsumeEvent",
    "ConsumeFromWhere",
    "ConsumeHook",
    "ConsumeOutcome",
    "ConsumeResult",
    "ConsumerNotOnlineError",
    "Credentials",
    "FaultLatencyConfig",
    "FileOffsets",
    "Fixed",
    "FlowControlError",
    "GroupNotFoundError",
    "GroupOnlineError",
    "GroupStatus",
    "GroupTakenError",
    "LocalProtocolError",
    "MemoryOffsets",
    "Message",
    "MessageBatch",
    "MessageIllegalError",
    "MessageInvalidError",
    "MessageModel",
    "MessageQueue",
    "NearbyRooms",
    "NoPermissionError",
    "NoQueueError",
    "NotARequestError",
    "NotAssignedError",
    "NotFoundError",
    "NotStartedError",
    "OffsetChange",
    "OffsetFileError",
    "OffsetOutOfRangeError",
    "OffsetStore",
    "PartlyFailedError",
    "Producer",
    "ProducerConfig",
    "ProtocolError",
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
    "RemoteProtocolError",
    "RemotingError",
    "ReplyTimeoutError",
    "RequestTimeoutError",
    "ResetTo",
    "RocketQError",
    "SelectorError",
    "SendContext",
    "SendFailedError",
    "SendHook",
    "SendManyResult",
    "SendMode",
    "SendOutcome",
    "SendResult",
    "SendStatus",
    "SendTimeoutError",
    "Sender",
    "ServiceNotAvailableError",
    "Session",
    "SessionConfig",
    "SessionHealth",
    "SharedSession",
    "StoredMessage",
    "SubscriptionInvalidError",
    "SubscriptionRejectedError",
    "SystemBusyError",
    "TlsError",
    "TooManyRequestsError",
    "TooManySendsError",
    "TopicNotFoundError",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
    "UnreachableError",
    "WrongLoopError",
    "run",
]
