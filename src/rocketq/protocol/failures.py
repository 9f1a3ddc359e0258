"""Failure answers as errors: the code is the contract, the remark is for people, retry reads a flag."""

from __future__ import annotations

import re
import warnings
from typing import ClassVar, Final

from rocketq.errors import RocketQError
from rocketq.protocol.codes import ResponseCode, code_name
from rocketq.protocol.command import Command


class BrokerError(RocketQError):
    """The peer answered with a failure code. `retriable`: a retry, at this or another broker, may succeed."""

    by_code: ClassVar[dict[int, type[BrokerError]]] = {}

    def __init__(self, code: int, remark: str | None = None, *, peer: str | None = None) -> None:
        at = f" from {peer}" if peer else ""
        super().__init__(f"{code_name(code, ResponseCode)} ({code}){at}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark
        self.peer = peer

    def __init_subclass__(cls, *, code: int | None, retriable: bool = False) -> None:
        cls.retriable = retriable
        if code is None:
            return
        if code in BrokerError.by_code:
            raise TypeError(f"two classes claim code {code}: {BrokerError.by_code[code].__name__} and {cls.__name__}")
        BrokerError.by_code[code] = cls


class AccessDeniedError(BrokerError, code=None):
    """Access denied: unknown user, wrong signature or missing permission. 4.x answers code 1 with the exception's name,
    5.x answers code 16 with one of a few fixed texts. What neither the answer nor the request says is None.

    `resource` is such as Topic:Orders, `source` the address the broker saw, `peer` the broker's address.
    """

    def __init__(
        self,
        code: int,
        remark: str | None = None,
        *,
        peer: str | None = None,
        user: str | None = None,
        action: str | None = None,
    ) -> None:
        super().__init__(code, remark, peer=peer)
        found = {name: value for each in _DENIALS if (match := each.search(remark or "")) is not None
                 for name, value in match.groupdict().items() if value}  # fmt: skip
        self.user = found.get("user", user)
        self.resource: str | None = found.get("resource")
        if "kind" in found:
            self.resource = f"{found['kind'].capitalize()}:{found['name']}"
        self.source: str | None = found.get("source")
        self.action = action

    @property
    def broker(self) -> str | None:
        return self.peer


_DENIALS: Final = (
    re.compile(r"^User:(?P<user>.*) has no permission to access (?P<resource>\S+) from (?P<source>[^\s,]+)"),
    re.compile(r"^User:(?P<user>.*) is (not found|disabled?)"),
    re.compile(r"No default permission for (?P<kind>topic|group):(?P<name>[^,\s]+)"),
    re.compile(r"accessKey=(?P<user>[^,\s]+)"),
)


def failure_of(response: Command, *, peer: str | None = None) -> BrokerError:
    """The error a failed response stands for; codes without a class of their own are plain BrokerErrors."""
    if is_denial(response):
        return AccessDeniedError(response.code, response.remark, peer=peer)
    if response.code == ResponseCode.SYSTEM_ERROR and _NO_FILTER.search(response.remark or "") is not None:
        return SubscriptionRejectedError(response.code, response.remark, peer=peer)
    kind = BrokerError.by_code.get(response.code, BrokerError)
    return kind(response.code, response.remark, peer=peer)


def is_denial(response: Command) -> bool:
    """Whether access control has rejected the request."""
    return response.code in _ACL_CODES and _ACL_REMARK.search(response.remark or "") is not None


_NO_FILTER: Final = re.compile(r"does not (support consumer to )?filter (message )?by ")
"""Of a broker with enablePropertyFilter=false."""
_ACL_CODES: Final = (ResponseCode.SYSTEM_ERROR, ResponseCode.NO_PERMISSION)
_ACL_REMARK: Final = re.compile(
    r"AclException|AuthenticationException|AuthorizationException"
    r"|^username cannot be null|^check signature failed|^User:.* (is not found|is disable|has no permission to access)"
)


# Apache's producers retry 1, 2, 14, 16, 17, 204, 205 and 1500; its consumers continue after 19, 20, 24, 25, 27, 28 and
# 215. Codes 209 to 211 have no class: they mean different things in 4.x and 5.x.


class InternalBrokerError(BrokerError, code=ResponseCode.SYSTEM_ERROR, retriable=True): ...


class SystemBusyError(BrokerError, code=ResponseCode.SYSTEM_BUSY, retriable=True): ...


class RequestNotSupportedError(BrokerError, code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED): ...


class FlushDiskTimeoutError(BrokerError, code=ResponseCode.FLUSH_DISK_TIMEOUT): ...


class SlaveNotAvailableError(BrokerError, code=ResponseCode.SLAVE_NOT_AVAILABLE): ...


class FlushSlaveTimeoutError(BrokerError, code=ResponseCode.FLUSH_SLAVE_TIMEOUT): ...


class MessageIllegalError(BrokerError, code=ResponseCode.MESSAGE_ILLEGAL): ...


class ServiceNotAvailableError(BrokerError, code=ResponseCode.SERVICE_NOT_AVAILABLE, retriable=True): ...


class VersionNotSupportedError(BrokerError, code=ResponseCode.VERSION_NOT_SUPPORTED): ...


class NoPermissionError(BrokerError, code=ResponseCode.NO_PERMISSION, retriable=True): ...


class TopicNotFoundError(BrokerError, code=ResponseCode.TOPIC_NOT_EXIST, retriable=True): ...


class PullNotFoundError(BrokerError, code=ResponseCode.PULL_NOT_FOUND, retriable=True): ...


class PullAgainError(BrokerError, code=ResponseCode.PULL_RETRY_IMMEDIATELY, retriable=True): ...


class OffsetMovedError(BrokerError, code=ResponseCode.PULL_OFFSET_MOVED): ...


class QueryNotFoundError(BrokerError, code=ResponseCode.QUERY_NOT_FOUND): ...


class SubscriptionRejectedError(BrokerError, code=ResponseCode.SUBSCRIPTION_PARSE_FAILED):
    """The broker cannot parse the expression, or does not filter by SQL92 (code 1, enablePropertyFilter=false)."""


class SubscriptionUnknownError(BrokerError, code=ResponseCode.SUBSCRIPTION_NOT_EXIST, retriable=True): ...


class SubscriptionOutdatedError(BrokerError, code=ResponseCode.SUBSCRIPTION_NOT_LATEST, retriable=True): ...


class GroupNotFoundError(BrokerError, code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST): ...


class FilterDataMissingError(BrokerError, code=ResponseCode.FILTER_DATA_NOT_EXIST, retriable=True): ...


class FilterDataOutdatedError(BrokerError, code=ResponseCode.FILTER_DATA_NOT_LATEST, retriable=True): ...


class InvalidParameterError(BrokerError, code=ResponseCode.INVALID_PARAMETER): ...


class NoBuyerIdError(BrokerError, code=ResponseCode.NO_BUYER_ID, retriable=True): ...


class NotInCurrentUnitError(BrokerError, code=ResponseCode.NOT_IN_CURRENT_UNIT, retriable=True): ...


class ConsumerNotOnlineError(BrokerError, code=ResponseCode.CONSUMER_NOT_ONLINE): ...


class ConsumerTimeoutError(BrokerError, code=ResponseCode.CONSUME_MSG_TIMEOUT): ...


class NoMessageError(BrokerError, code=ResponseCode.NO_MESSAGE): ...


class FlowControlError(BrokerError, code=ResponseCode.FLOW_CONTROL, retriable=True): ...


class IllegalOperationError(BrokerError, code=ResponseCode.ILLEGAL_OPERATION): ...


class GoAwayError(BrokerError, code=ResponseCode.GO_AWAY, retriable=True): ...


_RENAMED: Final = {
    "AclDenied": "AccessDeniedError",
    "InternalFailure": "InternalBrokerError",
    "NotFound": "QueryNotFoundError",
    "SubscriptionInvalid": "SubscriptionRejectedError",
}


def __getattr__(name: str) -> type[BrokerError]:
    """Deprecated names, without "Error" at the end."""
    renamed = globals().get(_RENAMED.get(name, f"{name}Error"))
    if not (isinstance(renamed, type) and issubclass(renamed, BrokerError)):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{name} is deprecated: use {renamed.__name__}", DeprecationWarning, stacklevel=2)
    return renamed
