"""The same clients without await, for scripts, threads and notebooks."""

from rocketq.client.sync.clients import Admin, Producer, PullConsumer, PushConsumer

__all__ = ["Admin", "Producer", "PullConsumer", "PushConsumer"]
