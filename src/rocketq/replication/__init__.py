"""Copies of the log on other brokers, and who of them is the master: decisions are pure, streams and files are skins."""
