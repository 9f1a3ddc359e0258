"""Known request codes that this broker does not support, each rejected with a reason."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rocketq.protocol.codes import POP_CODES, RequestCode, ResponseCode
from rocketq.protocol.command import Command
from rocketq.remoting import Connection, Registry
from rocketq.remoting.dispatch import Handler

_EPOCHS: Final = (RequestCode.GET_BROKER_EPOCH_CACHE,)
_CONTROLLER: Final = tuple(
    code
    for code in RequestCode
    if (1001 <= code <= 1013 and code not in _EPOCHS) or code is RequestCode.BROKER_HEARTBEAT
)
_CONTAINER: Final = (RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER)
_ROCKSDB: Final = (RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON)


def bind(registry: Registry) -> None:
    unsupported = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    _register(registry, POP_CODES, unsupported, "POP is not supported")
    _register(registry, _CONTROLLER, unsupported, "this broker has no controller")
    _register(registry, _EPOCHS, ResponseCode.SYSTEM_ERROR, "only brokers under a controller have epochs")
    _register(registry, _CONTAINER, unsupported, "this broker is not a broker container")
    _register(registry, _ROCKSDB, unsupported, "this broker does not keep its state in RocksDB")
    _register(registry, [RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC], unsupported, "static topics are not supported")


def _register(registry: Registry, codes: Iterable[RequestCode], code: ResponseCode, remark: str) -> None:
    for request_code in codes:
        registry.register(request_code, _refuse(code, f"request code {int(request_code)}: {remark}"))


def _refuse(code: ResponseCode, remark: str) -> Handler:
    def handle(request: Command, connection: Connection) -> Command:
        return request.answer(code, remark=remark)

    return handle
