"""The broker: takes, keeps and hands out messages. See docs/broker.md."""
