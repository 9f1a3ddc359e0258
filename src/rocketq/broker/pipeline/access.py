"""Who sends a request, and what they may do: the interface that access control implements, and two simple forms of it.

An implementation is asked in three places: check() before every handler, denial() within admission, and by the kernel,
which verifies signatures of the accounts by itself. Its owner bumps the generation whenever an answer may change.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Protocol

from rocketq.kernel.signatures import Account, Accounts
from rocketq.protocol.acl import ACCESS_KEY, is_signed
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection


class Action(enum.Enum):
    """What a request does with a topic or group."""

    PUBLISH = "Pub"
    SUBSCRIBE = "Sub"


class Access(Protocol):
    """Decides; never waits. A principal is the name of who signed, None where nobody has to."""

    @property
    def accounts(self) -> Accounts | None:
        """The kernel's table of who may sign; None: requests need no signature."""
        ...

    @property
    def depends_on_connection(self) -> bool:
        """Whether denial() may differ between connections of one principal."""
        ...

    def check(self, request: Command, connection: Connection) -> Command | None:
        """The answer that rejects a request, or None. Called for every code, known or not."""
        ...

    def principal_of(self, request: Command, connection: Connection) -> str | None:
        """Who sent a request that has passed check()."""
        ...

    def denial(
        self, action: Action, topic: str, group: str, principal: str | None, connection: Connection
    ) -> str | None:
        """Why the principal may not do this, or None."""
        ...


class OpenAccess:
    """Everybody may do everything, nobody has to sign."""

    accounts = None
    depends_on_connection = False

    def check(self, request: Command, connection: Connection) -> Command | None:
        return None

    def principal_of(self, request: Command, connection: Connection) -> str | None:
        return None

    def denial(
        self, action: Action, topic: str, group: str, principal: str | None, connection: Connection
    ) -> str | None:
        return None


class SignedAccess:
    """Every request must be signed by one of these accounts (access key to secret); then it may do everything."""

    depends_on_connection = False

    def __init__(self, secrets: Mapping[str, str]) -> None:
        self._secrets = dict(secrets)
        self.accounts = Accounts()
        for access_key, secret in self._secrets.items():
            self.accounts.put(Account(access_key.encode(), (secret.encode(),), access_key))

    def check(self, request: Command, connection: Connection) -> Command | None:
        access_key = request.ext_fields.get(ACCESS_KEY)
        if not access_key:
            return request.answer(ResponseCode.NO_PERMISSION, remark="the request is not signed: it has no AccessKey")
        secret = self._secrets.get(access_key)
        if secret is None:
            return request.answer(ResponseCode.NO_PERMISSION, remark=f"access key {access_key[:64]} is unknown")
        if not is_signed(request, secret):
            return request.answer(ResponseCode.NO_PERMISSION, remark=f"wrong signature for access key {access_key}")
        return None

    def principal_of(self, request: Command, connection: Connection) -> str | None:
        return request.ext_fields.get(ACCESS_KEY)

    def denial(
        self, action: Action, topic: str, group: str, principal: str | None, connection: Connection
    ) -> str | None:
        return None
