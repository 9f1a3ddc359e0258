"""Who sends a request, and what they may do: the interface that access control implements, and its forms.

An implementation is asked in three places: check() before every handler, denial() within admission, and by the kernel,
which verifies signatures of the accounts by itself. Its owner bumps the generation whenever an answer may change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

from rocketq.access.control import AccessControl, Denial
from rocketq.access.rights import PUBLISH, SUBSCRIBE, Action, Need, group_need, topic_need
from rocketq.kernel.signatures import Account, Accounts
from rocketq.model import decode_message_id
from rocketq.protocol.acl import ACCESS_KEY, is_signed
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.protocol.names import CHECK_EXHAUSTED_TOPIC, HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, Property
from rocketq.protocol.properties import decode_properties
from rocketq.remoting import Connection
from rocketq.store import StoreReader


class Access(Protocol):
    """Decides; never waits. A principal is the name of who signed, None where nobody has to."""

    @property
    def accounts(self) -> Accounts | None:
        """The kernel's table of who may sign; None: requests need no signature."""
        ...

    @property
    def depends_on_connection(self) -> bool:
        """Whether decisions may differ between connections, or request codes, of one principal."""
        ...

    def check(self, request: Command, connection: Connection) -> Command | None:
        """The answer that rejects a request, or None. Called for every code, known or not."""
        ...

    def principal_of(self, request: Command, connection: Connection) -> str | None:
        """Who sent a request that has passed check()."""
        ...

    def denial(
        self, action: Action, topic: str, group: str, principal: str | None, connection: Connection
    ) -> Denial | None:
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
    ) -> Denial | None:
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
    ) -> Denial | None:
        return None


class ControlledAccess:
    """ACL 1.0 or 2.0, as the settings say."""

    def __init__(self, control: AccessControl, store: StoreReader) -> None:
        self._control = control
        self._topics = StoreTopics(store)
        self.accounts = control.accounts

    @property
    def depends_on_connection(self) -> bool:
        return self._control.depends_on_source

    def check(self, request: Command, connection: Connection) -> Command | None:
        def is_served() -> bool:
            return request.code in connection.endpoint.dispatcher.codes

        denial = self._control.check(request, connection.peer_host, self._topics, is_served=is_served)
        return None if denial is None else denial.answer(request)

    def principal_of(self, request: Command, connection: Connection) -> str | None:
        return self._control.principal_of(request)

    def denial(
        self, action: Action, topic: str, group: str, principal: str | None, connection: Connection
    ) -> Denial | None:
        source = connection.peer_host
        code, needs = _needs(action, topic, group)
        if self._control.is_unlimited(_CODES[action]):
            return None  # check() has decided, by the code
        return self._control.denial(self._control.model.signer(principal, source), source, code, needs)


_CODES: Final[Mapping[Action, frozenset[int]]] = {
    Action.PUBLISH: frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}),
    Action.SUBSCRIBE: frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE}),
}


def _needs(action: Action, topic: str, group: str) -> tuple[int, tuple[Need, ...]]:
    if action is Action.PUBLISH:
        return int(RequestCode.SEND_MESSAGE_V2), (topic_need(topic, PUBLISH),)
    return int(RequestCode.PULL_MESSAGE), tuple(
        dict.fromkeys((group_need(group, SUBSCRIBE), topic_need(topic, SUBSCRIBE)))
    )


_WAITING: Final = frozenset({HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, CHECK_EXHAUSTED_TOPIC})


class StoreTopics:
    """Topics of stored messages, for requests that name a message alone."""

    def __init__(self, store: StoreReader) -> None:
        self._store = store

    def at(self, log_offset: int) -> str | None:
        record = self._store.queued_message_at(log_offset) if log_offset >= 0 else None
        if record is None:
            return None
        if record.topic not in _WAITING:
            return record.topic
        return decode_properties(record.properties).get(Property.REAL_TOPIC, record.topic)

    def of(self, message_id: str) -> str | None:
        try:
            return self.at(decode_message_id(message_id)[1])
        except ValueError:
            return None
