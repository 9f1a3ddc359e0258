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
