"""What the package is for others; `from rocketq.remoting import …` finds it here."""

from rocketq.remoting.connection import Connection, Endpoint
from rocketq.remoting.dispatch import Check, Dispatcher, EncodedReply, Handler, Hook, Middleware, Refusal, Registry
from rocketq.remoting.feed import Feed, feed_frames
from rocketq.remoting.handlers import Handlers, Reply, Request, SlicedAnswer
from rocketq.remoting.limits import Limits
from rocketq.remoting.loops import run
from rocketq.remoting.pool import ConnectionPool
from rocketq.remoting.server import Server
from rocketq.remoting.tls import ClientTls, ServerTls, TlsConfig, TlsMode

__all__ = [
    "Check",
    "ClientTls",
    "Connection",
    "ConnectionPool",
    "Dispatcher",
    "EncodedReply",
    "Endpoint",
    "Feed",
    "Handler",
    "Handlers",
    "Hook",
    "Limits",
    "Middleware",
    "Refusal",
    "Registry",
    "Reply",
    "Request",
    "Server",
    "ServerTls",
    "SlicedAnswer",
    "TlsConfig",
    "TlsMode",
    "feed_frames",
    "run",
]
