"""Access control of a broker: the requests about accounts, users and policies; without it, each with the reason."""

from __future__ import annotations

import asyncio
from typing import Final

from rocketq.access.service import AccessService
from rocketq.broker.access import user_handlers
from rocketq.broker.admin.settings import Settings
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, Registry
from rocketq.remoting.dispatch import Handler
from rocketq.runtime.clock import Clock

_PLAIN: Final = {
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: ResponseCode.UPDATE_ACL_CONFIG_FAILED,
    RequestCode.DELETE_ACL_CONFIG: ResponseCode.DELETE_ACL_CONFIG_FAILED,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_FAILED,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: ResponseCode.SYSTEM_ERROR,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: ResponseCode.SYSTEM_ERROR,
}
_USERS: Final = {code: ResponseCode.SYSTEM_ERROR for code in RequestCode if 3001 <= code <= 3010}


class AccessSubsystem:
    def __init__(self, service: AccessService | None, settings: Settings, clock: Clock) -> None:
        self.service = service
        self._settings = settings
        self._clock = clock

    def attach(self, registry: Registry) -> None:
        service = self.service
        if service is not None and service.plain_files is not None:
            from rocketq.broker.access import plain_handlers  # noqa: PLC0415 - with it YAML, which few brokers need

            ports = plain_handlers.PlainPorts(service, service.plain_files, self._settings, self._clock, asyncio.Lock())
            plain_handlers.handlers.bind(registry, ports)
        else:
            _reject(registry, _PLAIN, "ACL 1.0 is not enabled on this broker: aclEnable=false, or users decide")
        if service is not None and service.users is not None:
            user_handlers.handlers.bind(registry, user_handlers.UserPorts(service, service.users, self._settings))
        else:
            _reject(registry, _USERS, "users and policies are not enabled on this broker: authenticationEnabled=false")


def _reject(registry: Registry, codes: dict[RequestCode, ResponseCode], remark: str) -> None:
    for request_code, code in codes.items():
        registry.register(request_code, _rejection(code, remark))


def _rejection(code: int, remark: str) -> Handler:
    def handle(request: Command, connection: Connection) -> Command:
        return request.answer(code, remark=remark)

    return handle
