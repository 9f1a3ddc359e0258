"""Requests that a slave rejects because they change tables or the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from rocketq.broker.admin.settings import Settings
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection

_WRITES: Final = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.RECALL_MESSAGE,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        RequestCode.DELETE_SUBSCRIPTIONGROUP,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
    }
)
_SENDS: Final = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
REJECTED: Final[Mapping[int, ResponseCode]] = {
    **dict.fromkeys(_WRITES, ResponseCode.SERVICE_NOT_AVAILABLE),
    RequestCode.END_TRANSACTION: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""Producers retry on another broker after code 14, and on the master when they know it."""


class RejectOnReplica:
    """Request check: reject these requests while the broker is a slave."""

    def __init__(self, settings: Settings, rejected: Callable[[str], None] = lambda cause: None) -> None:
        """`rejected` is called with the cause of each rejected send, for metrics."""
        self._settings = settings
        self._rejected = rejected

    def __call__(self, request: Command, connection: Connection) -> Command | None:
        config = self._settings.config
        if not config.is_slave or request.code not in REJECTED:
            return None
        if request.code in _SENDS:
            self._rejected("slave")
        remark = f"broker {config.name} is a slave (id {config.broker_id}) and rejects writes"
        return request.answer(REJECTED[request.code], remark=remark)
