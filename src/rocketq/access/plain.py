"""ACL 1.0: accounts with permissions to publish and subscribe, as plain_acl.yml has them.

The order of the decision:
1. source on the global white list: allowed, whatever the credentials
2. account's own white address: allowed without signature
3. admin without topicPerms and groupPerms: allowed
4. what needs an admin: denied to everybody else
5. publishing traces: allowed to every account
6. the listed permission of the topic or group, else the default one; DENY beats all
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rocketq.access.addresses import AddressPattern
from rocketq.access.rights import Action, Need, Resource, ResourceKind
from rocketq.errors import ConfigError
from rocketq.protocol.acl import is_unicode
from rocketq.protocol.names import RETRY_PREFIX, TRACE_TOPIC

KEY_CHARS_MIN: Final = 7
DENY: Final = "DENY"
_WHY: Final = {ResourceKind.TOPIC: "topic", ResourceKind.GROUP: "group"}


class Permission(enum.IntFlag):
    """DENY is explicit; a missing default counts as DENY, too."""

    NONE = 0
    PUB = 1
    SUB = 2


PERMISSIONS: Final[Mapping[str, Permission]] = {
    "DENY": Permission.NONE,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}


def parse_permission(text: str | None) -> Permission:
    """Missing and unknown words are DENY, as when Apache reads a file."""
    return PERMISSIONS.get((text or "").strip(), Permission.NONE)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A decision with the rule that made it and those it beat, for people and the audit log."""

    allowed: bool
    rule: str
    reason: str = ""
    """Why it is denied, in the words of Apache's brokers."""
    beaten: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlainAccount:
    access_key: str
    secret_key: str = field(repr=False)
    white_address: AddressPattern = field(default_factory=lambda: AddressPattern(""))
    admin: bool = False
    default_topic: str | None = None
    default_group: str | None = None
    topic_perms: tuple[str, ...] = ()
    group_perms: tuple[str, ...] = ()

    @cached_property
    def permissions(self) -> Mapping[Resource, Permission]:
        """The listed ones. `%RETRY%G` among the topics is group G."""
        found: dict[Resource, Permission] = {}
        listed = [(ResourceKind.TOPIC, each) for each in self.topic_perms]
        listed += [(ResourceKind.GROUP, each) for each in self.group_perms]
        for kind, text in listed:
            name, _, permission = text.partition("=")
            name = name.strip()
            is_retry = name.startswith(RETRY_PREFIX)
            resource = Resource(ResourceKind.GROUP if is_retry else kind, name.removeprefix(RETRY_PREFIX))
            found[resource] = parse_permission(permission)
        return found

    @property
    def is_unlimited(self) -> bool:
        """Whether it may do everything: an admin with lists is held to them."""
        return self.admin and not self.topic_perms and not self.group_perms


def make_account(
    access_key: str,
    secret_key: str,
    *,
    white_address: str = "",
    admin: bool = False,
    default_topic: str | None = None,
    default_group: str | None = None,
    topic_perms: Iterable[str] = (),
    group_perms: Iterable[str] = (),
) -> PlainAccount:
    """ConfigError where Apache's broker rejects an account; the secret is not repeated."""
    if len(access_key) < KEY_CHARS_MIN or len(secret_key) < KEY_CHARS_MIN:
        raise ConfigError(
            f"The accessKey={access_key} and secretKey=*** cannot be null and length should longer than 6"
        )
    if not is_unicode(access_key) or not is_unicode(secret_key):
        raise ConfigError(f"The accessKey={access_key!a} or its secretKey is not valid Unicode")
    pattern = AddressPattern.parse(white_address)
    kept = []
    for perms in (topic_perms, group_perms):
        kept.append(tuple(_resource_permission(text, access_key) for text in perms if text.strip()))
    return PlainAccount(access_key, secret_key, pattern, admin, default_topic, default_group, *kept)


def _resource_permission(text: str, access_key: str) -> str:
    name, equals, permission = text.partition("=")
    if not equals or not name.strip() or "=" in permission:
        raise ConfigError(
            f"Parse Resource format error for {text}.\n"
            "The expected resource format is 'Res=Perm'. For example: topicA=SUB"
        )
    return f"{name.strip()}={permission.strip()}"


def require_known_permissions(texts: Iterable[str]) -> None:
    """Accounts by command must spell permissions right; files need not, there unknown words are DENY."""
    for text in texts:
        if text.partition("=")[2].strip() not in PERMISSIONS:
            raise ConfigError(
                f"Parse resource permission error for {text}.\n"
                "The expected permissions are 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
            )


@dataclass(frozen=True)
class PlainRules:
    """All accounts and the global white list, as one set of files has them."""

    white_addresses: tuple[AddressPattern, ...] = ()
    accounts: Mapping[str, PlainAccount] = field(default_factory=dict)

    def is_white(self, source: str) -> bool:
        return any(pattern.matches(source) for pattern in self.white_addresses)

    @property
    def depends_on_source(self) -> bool:
        return any(pattern.text for pattern in self.white_addresses) or any(
            account.white_address.text for account in self.accounts.values()
        )


def needed_permission(need: Need) -> Permission:
    """PUB stands for Pub, SUB for Sub and Get on topics and groups; NONE: it takes an admin."""
    if need.resource.kind is ResourceKind.CLUSTER:
        return Permission.NONE
    needed = Permission.PUB if Action.PUBLISH in need.actions else Permission.NONE
    return needed | (Permission.SUB if need.actions & {Action.SUBSCRIBE, Action.GET} else Permission.NONE)


def needs_admin(needs: Iterable[Need] | None) -> bool:
    return needs is None or any(not needed_permission(need) for need in needs)


def decide(rules: PlainRules, account: PlainAccount, source: str, code: int, needs: tuple[Need, ...] | None) -> Verdict:
    """Whether an account whose signature is right may do what a request of this code needs."""
    if rules.is_white(source):
        return Verdict(True, "globalWhiteRemoteAddresses")
    if account.white_address.matches(source):
        return Verdict(True, f"whiteRemoteAddress {account.white_address.text}")
    if account.is_unlimited:
        return Verdict(True, "admin")
    if needs_admin(needs):
        if account.admin:
            return Verdict(True, "admin")
        reason = f"Need admin permission for request code={code}, but accessKey={account.access_key} is not"
        return Verdict(False, "admin", reason)
    rule = ""
    for need in needs or ():
        verdict = decide_one(account, need)
        if not verdict.allowed:
            return verdict
        rule = verdict.rule
    return Verdict(True, rule or "signature")


def decide_one(account: PlainAccount, need: Need) -> Verdict:
    """One resource, by the account's lists and defaults alone."""
    resource, wanted = need.resource, needed_permission(need)
    if resource == Resource(ResourceKind.TOPIC, TRACE_TOPIC) and wanted & Permission.PUB:
        return Verdict(True, "traces")
    kind = _WHY[resource.kind]
    listed = account.permissions.get(resource)
    text = account.default_topic if resource.kind is ResourceKind.TOPIC else account.default_group
    default = f"default{kind.capitalize()}Perm={text or DENY}"
    given = parse_permission(text) if listed is None else listed
    rule = default if listed is None else f"{kind}Perms {resource.name}={_permission_text(listed)}"
    beaten = () if listed is None else (default,)
    if given & wanted:
        return Verdict(True, rule, beaten=beaten)
    return Verdict(False, rule, f"No default permission for {kind}:{resource.name}", beaten)


def _permission_text(permission: Permission) -> str:
    return next(text for text, each in PERMISSIONS.items() if each == permission)
