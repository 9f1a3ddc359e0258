"""Copies of the log on other brokers, and who of them is master. What decides is pure; streams and files are skins."""
