"""What a slave does not do: its master's tables and log are copied here, never changed."""

from __future__ import annotations

from collections.abc import Mapping
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
REJECTED: Final[Mapping[int, ResponseCode]] = {
    **dict.fromkeys(_WRITES, ResponseCode.SERVICE_NOT_AVAILABLE),
    RequestCode.END_TRANSACTION: ResponseCode.SLAVE_NOT_AVAILABLE,
}
"""Producers go to another broker when they hear 14, and to a master when they know one."""


class RejectOnReplica:
    """Check: while the broker is a slave, these requests do not reach their handlers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def __call__(self, request: Command, connection: Connection) -> Command | None:
        config = self._settings.config
        if not config.is_slave or request.code not in REJECTED:
            return None
        remark = f"broker {config.name} is a slave here (id {config.broker_id}): it takes no writes"
        return request.answer(REJECTED[request.code], remark=remark)
