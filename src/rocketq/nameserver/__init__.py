"""The NameServer: where topics and brokers are. Instances know nothing of each other."""

from rocketq.nameserver.app import NameServer
from rocketq.nameserver.config import NameServerConfig

__all__ = ["NameServer", "NameServerConfig"]
