"""The one tree of errors. The class and its fields are the contract, the text is for people."""


class RocketQError(Exception):
    """Root of everything this package raises on purpose."""

    retriable: bool = False


class ProtocolError(RocketQError):
    """Bytes that do not follow the protocol."""


class LocalProtocolError(ProtocolError):
    """We were asked to send something the protocol cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol does not allow."""


class ConfigError(RocketQError):
    """A setting is missing, unknown or contradicts another."""


class StoreError(RocketQError):
    """The store cannot do what was asked."""


class StoreLockedError(StoreError):
    """Another process has the store directory open."""


class StoreClosedError(StoreError):
    """The store was closed."""


class DamagedStateError(StoreError):
    """A state file and its backup are both unreadable; nothing was changed."""


class RemotingError(RocketQError):
    """A request did not get its answer. `addr` is the peer it was meant for."""

    retriable = True

    def __init__(self, addr: str, reason: str) -> None:
        super().__init__(f"{addr}: {reason}")
        self.addr = addr
        self.reason = reason


class UnreachableError(RemotingError):
    """No connection could be made; the request was not sent."""


class ConnectionClosedError(RemotingError):
    """The connection ended. A request already sent may or may not have been carried out."""


class RequestTimeoutError(RemotingError):
    """No answer in time. The request may or may not have been carried out.

    `what` is the request in words, up to the address: "route of topic Orders from NameServer".
    """

    def __init__(self, addr: str, code: int, timeout_ms: int, what: str | None = None) -> None:
        super().__init__(addr, f"no answer to request {code} within {timeout_ms} ms")
        self.args = (f"{what or f'request {code} to'} {addr} timed out after {timeout_ms} ms",)
        self.code = code
        self.timeout_ms = timeout_ms


class TooManyRequestsError(RemotingError):
    """As many requests as allowed wait for their answers; this one was not sent."""


class TlsError(RocketQError):
    """Certificates cannot be loaded or made."""
