"""The smallest client there is: plain sockets, no event loop. For processes that do one thing, as Spark's tasks do."""

from rocketq.client.blocking.client import BlockingClient
from rocketq.client.blocking.link import Link
from rocketq.client.blocking.queue_reader import QueueReader, ReadOptions

__all__ = ["BlockingClient", "Link", "QueueReader", "ReadOptions"]
