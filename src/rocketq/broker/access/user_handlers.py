"""Users and policies of ACL 2.0 by request (3001 to 3010). Changes work at once and are on disk before the answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rocketq.access.policies import User
from rocketq.access.service import AccessService
from rocketq.access.users import ChangeRefusedError, UserTable
from rocketq.broker.admin.settings import Settings
from rocketq.errors import StoreError
from rocketq.protocol.bodies.accounts import SubjectPolicies
from rocketq.protocol.bodies.accounts import User as UserBody
from rocketq.protocol.bodies.json_body import Body
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.fastjson import dumps
from rocketq.protocol.headers import admin as headers
from rocketq.remoting import Handlers, Reply, Request, RequestRejected

DONE: Final = "not set any response code"
"""The remark of Apache's brokers to what was done."""


@dataclass(frozen=True, slots=True)
class UserPorts:
    service: AccessService
    users: UserTable
    settings: Settings

    def require_master(self) -> None:
        """A slave's users are copies: a change here would be lost with the next one of the master."""
        if self.settings.config.is_slave and self.service.inner is not None:
            remark = "this broker is a slave: change users and policies at its master"
            raise RequestRejected(ResponseCode.SERVICE_NOT_AVAILABLE, remark)

    def by_super(self, request: Request[Any]) -> bool:
        control = self.service.control
        return control.model.is_super(control.principal_of(request.command))

    async def saved(self, request: Request[Any], details: dict[str, Any]) -> Reply:
        """The change is recorded, on disk and on its way to the slaves."""
        control = self.service.control
        user, source = control.principal_of(request.command), request.connection.peer_host
        control.record_change(user, source, request.command.code, details)
        try:
            await self.service.save()
            await self.service.share()
        except (OSError, StoreError) as error:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"the change could not be saved: {error}") from error
        return Reply(remark=DONE)


handlers: Handlers[UserPorts] = Handlers()


@handlers.on(RequestCode.AUTH_CREATE_USER)
async def create_user(request: Request[headers.UserRequest], ports: UserPorts) -> Reply:
    ports.require_master()
    info = _user_body(request)
    try:
        user = ports.users.create(request.header.username, info, by_super=ports.by_super(request))
    except ChangeRefusedError as error:
        raise RequestRejected(error.code, error.remark) from None
    return await ports.saved(request, {"changed": user.name, "before": None, "after": _shown(user)})


@handlers.on(RequestCode.AUTH_UPDATE_USER)
async def update_user(request: Request[headers.UserRequest], ports: UserPorts) -> Reply:
    ports.require_master()
    info = _user_body(request)
    try:
        before, after = ports.users.update(request.header.username, info, by_super=ports.by_super(request))
    except ChangeRefusedError as error:
        raise RequestRejected(error.code, error.remark) from None
    details: dict[str, Any] = {"changed": after.name, "before": _shown(before), "after": _shown(after)}
    return await ports.saved(request, details | {"secretChanged": before.secrets != after.secrets})


@handlers.on(RequestCode.AUTH_DELETE_USER)
async def delete_user(request: Request[headers.UserRequest], ports: UserPorts) -> Reply:
    ports.require_master()
    try:
        before = ports.users.delete(request.header.username, by_super=ports.by_super(request))
    except ChangeRefusedError as error:
        raise RequestRejected(error.code, error.remark) from None
    if before is None:
        return Reply(remark=DONE)
    return await ports.saved(request, {"changed": before.name, "before": _shown(before), "after": None})


@handlers.on(RequestCode.AUTH_GET_USER)
def get_user(request: Request[headers.UserRequest], ports: UserPorts) -> Reply:
    name = request.header.username
    if not name:
        raise RequestRejected(ResponseCode.INVALID_PARAMETER, "The username is blank")
    user = ports.users.get(name)
    return Reply(remark=DONE) if user is None else Reply(remark=DONE, body=ports.users.info(user))


@handlers.on(RequestCode.AUTH_LIST_USER)
def list_users(request: Request[headers.ListUsersRequest], ports: UserPorts) -> Reply:
    """Users by part of their names; with `sealed=true` everything, for slaves."""
    if request.header.sealed:
        sealed = ports.service.sealed_users() if ports.by_super(request) else None
        if sealed is None:
            raise RequestRejected(
                ResponseCode.NO_PERMISSION, "users are copied by brokers with common inner credentials only"
            )
        return Reply(body=sealed.encode())
    return _list_reply(ports.users.info(user) for user in ports.users.find(request.header.filter))


@handlers.on(RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL)
async def put_policies(request: Request[headers.PolicyRequest], ports: UserPorts) -> Reply:
    ports.require_master()
    body = SubjectPolicies.decode(request.body) if request.body else SubjectPolicies()
    subject = request.header.subject or body.subject
    before = _policies_shown(ports, subject)
    try:
        name = ports.users.put_policies(request.header.subject, body)
    except ChangeRefusedError as error:
        raise RequestRejected(error.code, error.remark) from None
    return await ports.saved(request, {"policiesOf": name, "before": before, "after": _policies_shown(ports, subject)})


@handlers.on(RequestCode.AUTH_DELETE_ACL)
async def delete_policies(request: Request[headers.PolicyRequest], ports: UserPorts) -> Reply:
    ports.require_master()
    header = request.header
    before = _policies_shown(ports, header.subject)
    try:
        name = ports.users.delete_policies(header.subject, header.policy_type, header.resource)
    except ChangeRefusedError as error:
        raise RequestRejected(error.code, error.remark) from None
    after = _policies_shown(ports, header.subject)
    return await ports.saved(request, {"policiesOf": name, "before": before, "after": after})


@handlers.on(RequestCode.AUTH_GET_ACL)
def get_policies(request: Request[headers.PolicyRequest], ports: UserPorts) -> Reply:
    try:
        found = ports.users.subject_policies(request.header.subject)
    except ChangeRefusedError as error:
        raise RequestRejected(error.code, error.remark) from None
    return Reply(remark=DONE) if found is None else Reply(remark=DONE, body=found)


@handlers.on(RequestCode.AUTH_LIST_ACL)
def list_policies(request: Request[headers.ListPoliciesRequest], ports: UserPorts) -> Reply:
    return _list_reply(ports.users.find_policies(request.header.subject_filter, request.header.resource_filter))


def _list_reply(bodies: Iterable[Body]) -> Reply:
    """None at all: no body, as Apache's brokers answer."""
    found = [body.to_json() for body in bodies]
    return Reply(remark=DONE, body=dumps(found) if found else b"")


def _user_body(request: Request[Any]) -> UserBody:
    return UserBody.decode(request.body) if request.body else UserBody()


def _shown(user: User) -> dict[str, Any]:
    return {"userType": user.kind, "userStatus": user.status, "secretCount": len(user.secrets)}


def _policies_shown(ports: UserPorts, subject: str | None) -> dict[str, Any] | None:
    try:
        found = ports.users.subject_policies(subject)
    except ChangeRefusedError:
        return None
    return None if found is None else found.to_json()
