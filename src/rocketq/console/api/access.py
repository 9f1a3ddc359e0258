"""Users, policies and accounts of a cluster, and explanations of access decisions."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Query
from starlette.responses import Response

from rocketq.access.policies import Policies, PolicyType, make_entry
from rocketq.access.rights import Action, Need, Resource, ResourceKind, group_need, topic_need
from rocketq.client.fan_out import outcomes
from rocketq.console.api.changing import How
from rocketq.console.changes import ChangePlan, ItemResult, ItemStatus, PlannedItem, command_line, run_change
from rocketq.console.config import Role
from rocketq.console.context import Call
from rocketq.console.problems import ProblemError
from rocketq.errors import RequestTimeoutError
from rocketq.protocol.bodies.accounts import PolicyEntry, User
from rocketq.protocol.failures import AccessDeniedError, BrokerError

reading = APIRouter(tags=["access"])
changing = APIRouter(tags=["access"])
Asked = Annotated[Call, Depends(Call)]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserRow:
    """A user of ACL 2.0. `missing_on`: brokers that do not have it, or have it otherwise."""

    name: str
    kind: str
    enabled: bool
    last_used_ms: int | None
    missing_on: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRow:
    user: str
    policy_type: str
    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...]
    decision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountRow:
    """An account of ACL 1.0, without its secret."""

    access_key: str
    admin: bool
    default_topic: str | None
    default_group: str | None
    topics: tuple[str, ...]
    groups: tuple[str, ...]
    white_addr: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPage:
    """`model`: none, users (ACL 2.0) or accounts (ACL 1.0)."""

    model: str
    reason: str | None
    users: tuple[UserRow, ...] = ()
    policies: tuple[PolicyRow, ...] = ()
    accounts: tuple[AccountRow, ...] = ()
    white_addrs: tuple[str, ...] = ()
    partial: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    allowed: bool
    rule: str
    reason: str | None
    beats: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class UserGiven:
    name: str
    password: str | None = None
    super_user: bool | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyGiven:
    user: str
    resource: str
    actions: tuple[str, ...]
    source_ips: tuple[str, ...] = ()
    decision: str = "Allow"


@reading.get("/clusters/{cluster}/access", response_model=AccessPage)
async def access(call: Asked) -> Response:
    """Users and policies, or accounts; and where brokers differ."""
    masters = (await call.admin.brokers.cluster()).brokers
    found = await outcomes({name: call.admin.access.users(broker=name) for name in sorted(masters)})
    if not found.results:
        error = next(iter(found.failures.values()), None)
        if isinstance(error, AccessDeniedError):
            raise error
        return call.answer(await _accounts(call, str(error)))
    by_name: dict[str, dict[str, User]] = {}
    for broker, users in found.results.items():
        for user in users:
            by_name.setdefault(user.username or "", {})[broker] = user
    policies = [
        PolicyRow(
            user=(subject.subject or "").removeprefix("User:"),
            policy_type=policy.kind or "Custom",
            resource=entry.resource or "",
            actions=entry.actions,
            source_ips=entry.source_ips or (),
            decision=entry.decision or "",
        )
        for subject in await call.admin.access.policies()
        for policy in subject.policies
        for entry in policy.entries
    ]
    rows = [_user_row(name, brokers, set(found.results)) for name, brokers in sorted(by_name.items())]
    partial = {name: str(error) for name, error in found.failures.items()}
    return call.answer(
        AccessPage(model="users", reason=None, users=tuple(rows), policies=tuple(policies), partial=partial)
    )


def _user_row(name: str, brokers: Mapping[str, User], asked: set[str]) -> UserRow:
    first = next(iter(brokers.values()))
    differ = {broker for broker, user in brokers.items() if (user.kind, user.status) != (first.kind, first.status)}
    return UserRow(
        name=name,
        kind=first.kind or "Normal",
        enabled=first.status != "disable",
        last_used_ms=max((user.last_used_ms or 0 for user in brokers.values()), default=0) or None,
        missing_on=tuple(sorted((asked - set(brokers)) | differ)),
    )


async def _accounts(call: Call, reason: str) -> AccessPage:
    try:
        config = await call.admin.access.accounts()
    except AccessDeniedError:
        raise
    except (BrokerError, RequestTimeoutError):  # Apache 4.x does not answer this while access control is off
        return AccessPage(model="none", reason=reason)
    return AccessPage(
        model="accounts",
        reason=None,
        accounts=tuple(
            AccountRow(
                access_key=one.access_key,
                admin=one.admin,
                default_topic=one.default_topic_perm,
                default_group=one.default_group_perm,
                topics=one.topic_perms or (),
                groups=one.group_perms or (),
                white_addr=one.white_addr or None,
            )
            for one in config.accounts
        ),
        white_addrs=config.white_addrs,
    )


@reading.get("/clusters/{cluster}/access/explain", response_model=Explanation)
async def explain(
    call: Asked,
    user: str,
    action: str,
    topic: str = "",
    group: str = "",
    source: Annotated[str, Query(alias="from", description="source address")] = "127.0.0.1",
    broker: str = "",
) -> Response:
    """Whether a user of ACL 2.0 may do something, and the rule that decides."""
    try:
        ipaddress.ip_address(source)
        wanted = frozenset({next(each for each in Action if each.value.lower() == action.lower())})
    except ValueError:
        raise ProblemError(422, "invalid", f"{source} is not an address") from None
    except StopIteration:
        words = ", ".join(each.value for each in Action)
        raise ProblemError(422, "invalid", f"action {action!r} is not one of {words}") from None
    found = await call.admin.access.user(user, broker=broker or None)
    if found.status == "disable":
        return call.answer(Explanation(allowed=False, rule="user is disabled", reason=None, beats=()))
    if found.kind == "Super":
        return call.answer(Explanation(allowed=True, rule="super user", reason=None, beats=()))
    rules = Policies()
    for each in (await call.admin.access.policies_of(user, broker=broker or None)).policies:
        entries = [make_entry(one.resource, one.actions, one.source_ips, one.decision) for one in each.entries]
        rules = rules.with_entries(PolicyType(each.kind or "Custom"), entries)
    if topic:
        need = topic_need(topic, wanted)
    elif group:
        need = group_need(group, wanted)
    else:
        need = Need(Resource(ResourceKind.CLUSTER, call.cluster.name), wanted)
    verdict = rules.decide(need, source)
    return call.answer(
        Explanation(
            allowed=verdict.allowed, rule=verdict.rule, reason=verdict.reason or None, beats=tuple(verdict.beaten)
        )
    )


@changing.post("/clusters/{cluster}/access/users")
async def set_user(call: Asked, how: How, given: Annotated[UserGiven, Body()]) -> Response:
    """Make a user on every broker, or change its password, kind or state. The password is never shown again."""

    async def plan() -> ChangePlan:
        known = {one.username: one for one in await call.admin.access.users(given.name)}.get(given.name)
        masters = sorted((await call.admin.brokers.cluster()).brokers)
        if known is None and not given.password:
            raise ProblemError(422, "invalid", "a new user needs a password")

        async def apply() -> tuple[ItemResult, ...]:
            admin = call.admin.access
            if known is None:
                made = await admin.create_user(given.name, given.password or "", super_user=bool(given.super_user))
            else:
                made = await admin.update_user(
                    given.name, password=given.password, super_user=given.super_user, enabled=given.enabled
                )
            return tuple(ItemResult(name=name, status=ItemStatus.DONE) for name in made)

        options: list[object] = []
        if known is not None and given.password:
            options.append("--password")
        if given.super_user is not None and known is not None:
            options.append("--super" if given.super_user else "--normal")
        elif given.super_user:
            options.append("--super")
        if given.enabled is not None and known is not None:
            options.append("--enable" if given.enabled else "--disable")
        before = None if known is None else {"kind": known.kind, "status": known.status}
        after = {"super": given.super_user, "enabled": given.enabled, "password": "new" if given.password else "same"}
        return ChangePlan(
            action="user.change" if known else "user.create",
            target=given.name,
            role=Role.ADMIN,
            command=command_line("user", "update" if known else "create", given.name, *options),
            items=tuple(PlannedItem(name=name, before=before, after=after) for name in masters),
            apply=apply,
        )

    return await run_change(call, how, plan)


@changing.delete("/clusters/{cluster}/access/users/{name}")
async def delete_user(call: Asked, how: How, name: str) -> Response:
    """Delete a user with its policies."""

    async def plan() -> ChangePlan:
        await call.admin.access.user(name)
        masters = sorted((await call.admin.brokers.cluster()).brokers)

        async def apply() -> tuple[ItemResult, ...]:
            return tuple(
                ItemResult(name=each, status=ItemStatus.DONE) for each in await call.admin.access.delete_user(name)
            )

        return ChangePlan(
            action="user.delete",
            target=name,
            role=Role.ADMIN,
            command=command_line("user", "delete", name),
            items=tuple(PlannedItem(name=each, before=name) for each in masters),
            confirm=name,
            apply=apply,
        )

    return await run_change(call, how, plan)


@changing.post("/clusters/{cluster}/access/policies")
async def set_policy(call: Asked, how: How, given: Annotated[PolicyGiven, Body()]) -> Response:
    """Allow or deny actions on a resource for a user."""
    entry = PolicyEntry(
        resource=given.resource,
        actions=given.actions,
        source_ips=given.source_ips or None,
        decision=given.decision,
    )
    make_entry(entry.resource, entry.actions, entry.source_ips, entry.decision)  # ConfigError for a bad one

    async def plan() -> ChangePlan:
        known = await call.admin.access.policies_of(given.user)
        before = [one for policy in known.policies for one in policy.entries if one.resource == given.resource]

        async def apply() -> tuple[ItemResult, ...]:
            made = await call.admin.access.put_policies(given.user, [entry])
            return tuple(ItemResult(name=name, status=ItemStatus.DONE) for name in made)

        options: list[object] = ["--resource", given.resource, "--actions", ",".join(given.actions)]
        for source in given.source_ips:
            options += ["--from", source]
        options += ["--deny"] if given.decision.lower() == "deny" else []
        shown = f"{given.decision} {', '.join(given.actions)}"
        return ChangePlan(
            action="policy.set",
            target=f"{given.user} {given.resource}",
            role=Role.ADMIN,
            command=command_line("policy", "create" if not before else "update", given.user, *options),
            items=(
                PlannedItem(
                    name=given.resource,
                    before=f"{before[0].decision} {', '.join(before[0].actions)}" if before else None,
                    after=shown,
                ),
            ),
            apply=apply,
        )

    return await run_change(call, how, plan)


@changing.delete("/clusters/{cluster}/access/policies/{user}")
async def delete_policy(call: Asked, how: How, user: str, resource: str) -> Response:
    """Remove a user's policy for a resource."""

    async def plan() -> ChangePlan:
        async def apply() -> tuple[ItemResult, ...]:
            made = await call.admin.access.delete_policies(user, resource)
            return tuple(ItemResult(name=name, status=ItemStatus.DONE) for name in made)

        return ChangePlan(
            action="policy.delete",
            target=f"{user} {resource}",
            role=Role.ADMIN,
            command=command_line("policy", "delete", user, "--resource", resource),
            items=(PlannedItem(name=resource, before=user),),
            apply=apply,
        )

    return await run_change(call, how, plan)
