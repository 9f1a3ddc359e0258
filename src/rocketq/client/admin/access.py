"""Users and policies of a cluster (ACL 2.0), for operators: one call changes all masters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rocketq.access.policies import SUBJECT_PREFIX
from rocketq.client.admin.brokers import BrokerDirectory
from rocketq.client.errors import NotFoundError
from rocketq.client.fan_out import on_each
from rocketq.client.session import Session
from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.accounts import AccessConfig, Policy, PolicyEntry, SubjectPolicies, User
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.headers import admin as headers
from rocketq.protocol.headers.wire import Header


class AsyncAccess:
    """Changes go to every master, or to one broker; PartlyFailedError names those that did not make one."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._directory = BrokerDirectory(session)

    # users

    async def users(self, name_filter: str | None = None, *, broker: str | None = None) -> list[User]:
        """Users whose name contains a text, without their secrets; of one broker, or of the first master."""
        answer = await self._ask(headers.ListUsersRequest(filter=name_filter), broker)
        return [User.from_json(each) for each in _listed(answer)]

    async def user(self, name: str, *, broker: str | None = None) -> User:
        answer = await self._ask(headers.UserRequest(username=name), broker, code=RequestCode.AUTH_GET_USER)
        if not answer.body:
            raise NotFoundError("user", name)
        return User.decode(answer.body)

    async def create_user(
        self, name: str, password: str, *, super_user: bool = False, broker: str | None = None
    ) -> list[str]:
        """The brokers that made it."""
        body = User(username=name, password=password, kind="Super" if super_user else "Normal")
        return await self._change(
            headers.UserRequest(username=name), RequestCode.AUTH_CREATE_USER, broker, body.encode()
        )

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        keep_secret: bool | None = None,
        super_user: bool | None = None,
        enabled: bool | None = None,
        broker: str | None = None,
    ) -> list[str]:
        """With `keep_secret` the old secret stays active beside the new one; False drops the older of two."""
        body = User(
            username=name,
            password=password,
            kind=None if super_user is None else "Super" if super_user else "Normal",
            status=None if enabled is None else "enable" if enabled else "disable",
            keep_secret=keep_secret,
        )
        return await self._change(
            headers.UserRequest(username=name), RequestCode.AUTH_UPDATE_USER, broker, body.encode()
        )

    async def delete_user(self, name: str, *, broker: str | None = None) -> list[str]:
        """Its policies go too."""
        return await self._change(headers.UserRequest(username=name), RequestCode.AUTH_DELETE_USER, broker)

    # policies

    async def policies(
        self, subject_filter: str | None = None, resource_filter: str | None = None, *, broker: str | None = None
    ) -> list[SubjectPolicies]:
        header = headers.ListPoliciesRequest(subject_filter=subject_filter, resource_filter=resource_filter)
        return [SubjectPolicies.from_json(each) for each in _listed(await self._ask(header, broker))]

    async def policies_of(self, user: str, *, broker: str | None = None) -> SubjectPolicies:
        """An empty one where there is none."""
        header = headers.PolicyRequest(subject=SUBJECT_PREFIX + user)
        answer = await self._ask(header, broker, code=RequestCode.AUTH_GET_ACL)
        return SubjectPolicies.decode(answer.body) if answer.body else SubjectPolicies(subject=SUBJECT_PREFIX + user)

    async def put_policies(
        self, user: str, entries: Iterable[PolicyEntry], *, policy_type: str = "Custom", broker: str | None = None
    ) -> list[str]:
        """Entries of resources that have one replace it."""
        subject = SUBJECT_PREFIX + user
        body = SubjectPolicies(subject=subject, policies=(Policy(kind=policy_type, entries=tuple(entries)),))
        header = headers.PolicyRequest(subject=subject)
        return await self._change(header, RequestCode.AUTH_UPDATE_ACL, broker, body.encode())

    async def delete_policies(
        self, user: str, resource: str | None = None, *, policy_type: str | None = None, broker: str | None = None
    ) -> list[str]:
        """Without a resource all of the user's."""
        header = headers.PolicyRequest(subject=SUBJECT_PREFIX + user, resource=resource, policy_type=policy_type)
        return await self._change(header, RequestCode.AUTH_DELETE_ACL, broker)

    # ACL 1.0

    async def accounts(self, *, broker: str | None = None) -> AccessConfig:
        """Accounts and white addresses, without secrets."""
        answer = await self._ask(None, broker, code=RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return AccessConfig.decode(answer.body)

    # brokers

    async def _ask(self, header: Header | None, broker: str | None, code: RequestCode | None = None) -> Command:
        masters = await self._directory.masters(broker=broker)
        return await self._session.call(next(iter(masters.values())), header, code=code)

    async def _change(self, header: Header, code: RequestCode, broker: str | None, body: bytes = b"") -> list[str]:
        masters = await self._directory.masters(broker=broker)
        call = self._session.call
        await on_each({name: call(addr, header, code=code, body=body) for name, addr in masters.items()})
        return sorted(masters)


def _listed(answer: Command) -> Sequence[object]:
    if not answer.body:
        return ()
    found = json.loads(answer.body)
    if not isinstance(found, list):
        raise RemoteProtocolError("a list was expected")
    return found
