"""Delay levels and timers."""
