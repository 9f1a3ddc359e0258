"""The same clients without await, for scripts, threads and notebooks."""

from rocketq.client.sync.clients import Admin, Producer, PullConsumer, PushConsumer
from rocketq.client.sync.shared import SharedSession

__all__ = ["Admin", "Producer", "PullConsumer", "PushConsumer", "SharedSession"]
