"""The broker: takes, keeps and hands out messages. See docs/internals/broker.md."""

from rocketq.broker.app import Broker
from rocketq.broker.config import BrokerConfig

__all__ = ["Broker", "BrokerConfig"]
