"""RocketMQ for Python and Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketq.client import (
        AccessDeniedError,
        AclDenied,
        Admin,
        AsyncAdmin,
        AsyncProducer,
        AsyncPullConsumer,
        AsyncPushConsumer,
        Batching,
        BrokerError,
        ClientError,
        ConsumeContext,
        ConsumeFromWhere,
        ConsumeOutcome,
        ConsumeResult,
        Credentials,
        Message,
        MessageModel,
        MessageQueue,
        Producer,
        ProducerConfig,
        PullConfig,
        PullConsumer,
        PushConfig,
        PushConsumer,
        ResetTo,
        SendFailedError,
        SendResult,
        SendStatus,
        Session,
        SessionConfig,
        StoredMessage,
        TransactionListener,
        TransactionResult,
        TransactionState,
    )
    from rocketq.errors import RocketQError

__version__ = "0.1.0"

__all__ = [
    "AccessDeniedError",
    "AclDenied",
    "Admin",
    "AsyncAdmin",
    "AsyncProducer",
    "AsyncPullConsumer",
    "AsyncPushConsumer",
    "Batching",
    "BrokerError",
    "ClientError",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeOutcome",
    "ConsumeResult",
    "Credentials",
    "Message",
    "MessageModel",
    "MessageQueue",
    "Producer",
    "ProducerConfig",
    "PullConfig",
    "PullConsumer",
    "PushConfig",
    "PushConsumer",
    "ResetTo",
    "RocketQError",
    "SendFailedError",
    "SendResult",
    "SendStatus",
    "Session",
    "SessionConfig",
    "StoredMessage",
    "TransactionListener",
    "TransactionResult",
    "TransactionState",
]


def __getattr__(name: str) -> Any:
    """The main names of the client; imported when one is asked for, since brokers and tools need none of it."""
    if name == "RocketQError":
        from rocketq.errors import RocketQError  # noqa: PLC0415

        return RocketQError
    if name in __all__:
        from rocketq import client  # noqa: PLC0415

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """So that completion finds them too."""
    return [*globals(), *__all__]
