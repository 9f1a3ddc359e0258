"""JSON bodies as frozen values, one module per subject."""

from rocketq.protocol.bodies.json_body import Body, body, member

__all__ = ["Body", "body", "member"]
