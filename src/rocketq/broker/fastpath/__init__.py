"""Sends and pulls that the kernel executes by itself."""
