"""The fast path: sends and pulls that the kernel executes without Python handlers."""
