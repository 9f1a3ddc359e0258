"""Typed ext fields, one module per request family; `by_code` finds the class of a request code among all of them."""

from rocketq.protocol.headers.wire import I32, I64, BadFieldError, Header, header, wire

__all__ = ["I32", "I64", "BadFieldError", "Header", "header", "wire"]
