"""Access control: accounts of 4.x, users and policies of 5.x."""

from __future__ import annotations

from rocketq.protocol.bodies.json_body import Body, body, member


@body
class Account(Body):
    access_key: str = member("accessKey")
    secret_key: str | None = member("secretKey", default=None)
    white_addr: str | None = member("whiteRemoteAddress", default=None)
    admin: bool = member("admin", default=False)
    default_topic_perm: str | None = member("defaultTopicPerm", default=None)
    default_group_perm: str | None = member("defaultGroupPerm", default=None)
    topic_perms: tuple[str, ...] | None = member("topicPerms", default=None)
    group_perms: tuple[str, ...] | None = member("groupPerms", default=None)


@body
class AccessConfig(Body):
    white_addrs: tuple[str, ...] = member("globalWhiteAddrs", default=())
    accounts: tuple[Account, ...] = member("plainAccessConfigs", default=())


@body
class User(Body):
    username: str | None = member("username", default=None)
    password: str | None = member("password", default=None)
    kind: str | None = member("userType", default=None)
    status: str | None = member("userStatus", default=None)
    keep_secret: bool | None = member("keepSecret", default=None)
    """Ours, in requests 3002: whether the secret there was stays active beside the new one."""
    secret_count: int | None = member("secretCount", default=None)
    """Ours, as the next: in answers."""
    last_used_ms: int | None = member("lastUsedTime", default=None)


@body
class PolicyEntry(Body):
    resource: str | None = member("resource", default=None)
    actions: tuple[str, ...] = member("actions", default=())
    source_ips: tuple[str, ...] | None = member("sourceIps", default=None)
    decision: str | None = member("decision", default=None)


@body
class Policy(Body):
    kind: str | None = member("policyType", default=None)
    entries: tuple[PolicyEntry, ...] = member("entries", default=())


@body
class SubjectPolicies(Body):
    subject: str | None = member("subject", default=None)
    policies: tuple[Policy, ...] = member("policies", default=())
