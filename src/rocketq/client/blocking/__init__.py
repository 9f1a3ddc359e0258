"""A client without an event loop, on plain sockets: for processes that do one thing, such as Spark tasks."""

from rocketq.client.blocking.client import BlockingClient, BlockingConnection
from rocketq.client.blocking.queue_reader import QueueReader, ReadOptions

__all__ = ["BlockingClient", "BlockingConnection", "QueueReader", "ReadOptions"]
