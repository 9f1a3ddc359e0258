"""The same names without await, for scripts, threads and notebooks."""

from rocketq.client.sync.admin import Admin

__all__ = ["Admin"]
