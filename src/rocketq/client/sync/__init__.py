"""The same names without await, for scripts, threads and notebooks."""

from rocketq.client.sync.admin import Admin
from rocketq.client.sync.consumers import PullConsumer, PushConsumer
from rocketq.client.sync.producer import Producer

__all__ = [
    "Admin",
    "Producer",
    "PullConsumer",
    "PushConsumer",
]
