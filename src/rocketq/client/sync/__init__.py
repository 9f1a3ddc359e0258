"""The same clients without await, for scripts, threads and notebooks."""
