"""Public names of the package, loaded on first use."""

from rocketq.remoting.connection import Connection, Endpoint
from rocketq.remoting.dispatch import (
    Check,
    Dispatcher,
    EncodedReply,
    Handler,
    Hook,
    Middleware,
    Registry,
    RequestRejected,
)
from rocketq.remoting.frame_reader import FrameReader, read_frames
from rocketq.remoting.handlers import Handlers, Reply, Request, SlicedAnswer
from rocketq.remoting.limits import Limits
from rocketq.remoting.loops import run
from rocketq.remoting.pool import ConnectionPool
from rocketq.remoting.server import Server
from rocketq.remoting.tls import ClientTls, ServerTls, TlsConfig, TlsMode
from rocketq.remoting.tls_settings import TlsSettings

__all__ = [
    "Check",
    "ClientTls",
    "Connection",
    "ConnectionPool",
    "Dispatcher",
    "EncodedReply",
    "Endpoint",
    "FrameReader",
    "Handler",
    "Handlers",
    "Hook",
    "Limits",
    "Middleware",
    "Registry",
    "Reply",
    "Request",
    "RequestRejected",
    "Server",
    "ServerTls",
    "SlicedAnswer",
    "TlsConfig",
    "TlsMode",
    "TlsSettings",
    "read_frames",
    "run",
]
