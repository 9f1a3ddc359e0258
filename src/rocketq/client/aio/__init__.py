"""The asyncio client: a session, and what works through it."""

from rocketq.client.aio.admin import AsyncAdmin
from rocketq.client.aio.health import SessionHealth
from rocketq.client.aio.producer import AsyncProducer
from rocketq.client.aio.puller import Puller, PullResult, PullStatus
from rocketq.client.aio.sender import Sender
from rocketq.client.aio.session import Session, SessionConfig

__all__ = [
    "AsyncAdmin",
    "AsyncProducer",
    "PullResult",
    "PullStatus",
    "Puller",
    "Sender",
    "Session",
    "SessionConfig",
    "SessionHealth",
]
