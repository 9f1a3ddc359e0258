"""The NameServer: routes of topics and addresses of brokers. Instances are independent of each other."""

from rocketq.nameserver.app import NameServer
from rocketq.nameserver.config import NameServerConfig

__all__ = ["NameServer", "NameServerConfig"]
