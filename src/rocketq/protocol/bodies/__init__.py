"""JSON bodies as frozen values, one module per subject."""

from rocketq.protocol.bodies.json_body import Body, body, lazy_tuple, member

__all__ = ["Body", "body", "lazy_tuple", "member"]
