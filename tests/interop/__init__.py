"""Our store against real Apache RocketMQ brokers, started here on loopback (see README.md)."""
