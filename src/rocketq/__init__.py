"""RocketMQ for Python and Spark. Everything public is a name of this package; `dir(rocketq)` lists them."""

# ruff: noqa: F405 (the names of __all__ come from a star import for type checkers)

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rocketq.client.public import *  # noqa: F403

__version__ = "0.1.0"

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

_HOMES: Final = {
    "rocketq.client.admin": ("AsyncAdmin",),
    "rocketq.client.admin.groups": (
        "GroupStatus",
        "QueueLag",
    ),
    "rocketq.client.core.allocation": (
        "AllocationStrategy",
        "Averagely",
        "ByCircle",
        "ByConsistentHash",
        "ByMachineRoom",
        "Fixed",
        "NearbyRooms",
    ),
    "rocketq.client.core.batches": ("Batching",),
    "rocketq.client.core.config": (
        "ProducerConfig",
        "PullConfig",
        "PullWindow",
        "PushConfig",
    ),
    "rocketq.client.core.consume_results": (
        "ConsumeContext",
        "ConsumeEvent",
        "ConsumeHook",
        "ConsumeOutcome",
        "ConsumeResult",
        "PullFilter",
    ),
    "rocketq.client.core.messages": ("Message",),
    "rocketq.client.core.offsets": (
        "OffsetChange",
        "ResetTo",
    ),
    "rocketq.client.core.routes": ("FaultLatencyConfig",),
    "rocketq.client.core.send_flow": (
        "SendContext",
        "SendHook",
        "SendMode",
        "SendOutcome",
        "SendResult",
        "SendStatus",
        "TransactionResult",
    ),
    "rocketq.client.core.stored_messages": ("StoredMessage",),
    "rocketq.client.core.subscriptions": ("SubscriptionInvalidError",),
    "rocketq.client.errors": (
        "BatchFailedError",
        "ClientClosedError",
        "ClientError",
        "GroupOnlineError",
        "GroupTakenError",
        "MessageInvalidError",
        "NoQueueError",
        "NotARequestError",
        "NotFoundError",
        "NotStartedError",
        "PartlyFailedError",
        "RecallHandleError",
        "ReplyTimeoutError",
        "SelectorError",
        "SendFailedError",
        "SendTimeoutError",
        "TooManySendsError",
        "WrongLoopError",
    ),
    "rocketq.client.fetcher": (
        "PullResult",
        "PullStatus",
        "Puller",
    ),
    "rocketq.client.message_batch": ("MessageBatch",),
    "rocketq.client.offsets": (
        "FileOffsets",
        "MemoryOffsets",
        "OffsetFileError",
        "OffsetStore",
        "RemoteOffsets",
    ),
    "rocketq.client.producer": ("AsyncProducer",),
    "rocketq.client.pull_consumer": (
        "AsyncPullConsumer",
        "NotAssignedError",
        "OffsetOutOfRangeError",
    ),
    "rocketq.client.push_consumer": (
        "AsyncPushConsumer",
        "QueueHealth",
    ),
    "rocketq.client.send": ("Sender",),
    "rocketq.client.send_many": ("SendManyResult",),
    "rocketq.client.session": (
        "Session",
        "SessionConfig",
        "SessionHealth",
    ),
    "rocketq.client.sync.admin": ("Admin",),
    "rocketq.client.sync.consumers": (
        "PullConsumer",
        "PushConsumer",
    ),
    "rocketq.client.sync.producer": ("Producer",),
    "rocketq.client.sync.shared": ("SharedSession",),
    "rocketq.client.transactions": ("TransactionListener",),
    "rocketq.errors": (
        "ConfigError",
        "ConnectionClosedError",
        "LocalProtocolError",
        "ProtocolError",
        "RemoteProtocolError",
        "RemotingError",
        "RequestTimeoutError",
        "RocketQError",
        "TlsError",
        "TooManyRequestsError",
        "UnreachableError",
    ),
    "rocketq.protocol.acl": ("Credentials",),
    "rocketq.protocol.bodies.queues": ("MessageQueue",),
    "rocketq.protocol.failures": (
        "AccessDeniedError",
        "BrokerError",
        "ConsumerNotOnlineError",
        "FlowControlError",
        "GroupNotFoundError",
        "MessageIllegalError",
        "NoPermissionError",
        "ServiceNotAvailableError",
        "SubscriptionRejectedError",
        "SystemBusyError",
        "TopicNotFoundError",
    ),
    "rocketq.protocol.flags": (
        "ConsumeFromWhere",
        "MessageModel",
        "TransactionState",
    ),
    "rocketq.remoting.loops": ("run",),
    "rocketq.remoting.tls": ("ClientTls",),
}
"""Modules by the public names they define; a module is imported when one of its names is first used."""

_MODULES: Final = {name: module for module, names in _HOMES.items() for name in names}

_RENAMED: Final = {"AclDenied": "AccessDeniedError"}


def __getattr__(name: str) -> Any:
    """Import a public name on its first use: brokers and tools need few of them."""
    if name in _RENAMED:
        import warnings  # noqa: PLC0415

        warnings.warn(f"{name} is deprecated: use {_RENAMED[name]}", DeprecationWarning, stacklevel=2)
        return getattr(import_module(_MODULES[_RENAMED[name]]), _RENAMED[name])
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
