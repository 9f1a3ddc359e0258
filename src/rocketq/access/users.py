"""The users and policies of ACL 2.0: a table that requests 3001 to 3010 read and change. Pure.

A change that is not allowed raises ChangeRefusedError with code and remark as Apache's brokers answer them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rocketq.access.config import MASK
from rocketq.access.plain import Permission, PlainRules, parse_permission
from rocketq.access.policies import (
    SUBJECT_PREFIX,
    Policies,
    PolicyEntry,
    PolicyError,
    PolicyType,
    ResourcePattern,
    User,
    make_entry,
)
from rocketq.access.rights import ResourceKind
from rocketq.errors import RocketQError
from rocketq.protocol.acl import is_unicode
from rocketq.protocol.bodies import accounts as bodies
from rocketq.protocol.codes import ResponseCode

SECRETS_MAX: Final = 2
_STATUSES: Final = {"enable": True, "disable": False}


class ChangeRefusedError(RocketQError):
    """A change of users or policies that is not made."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.code = code
        self.remark = remark


def _refused(remark: str, code: int = ResponseCode.NO_PERMISSION) -> ChangeRefusedError:
    return ChangeRefusedError(code, remark)


@dataclass(frozen=True)
class UserState:
    """Everything that is kept and replicated."""

    users: Mapping[str, User] = field(default_factory=dict)
    policies: Mapping[str, Policies] = field(default_factory=dict)
    version: int = 0


class UserTable:
    """`state` is replaced by every change, never edited. Listeners are called after each."""

    def __init__(self, state: UserState | None = None) -> None:
        self.state = state or UserState()
        self.listeners: list[Callable[[], None]] = []
        self.last_used_ms: dict[str, int] = {}

    def replace_all(self, state: UserState) -> None:
        """What the file, or the master, has."""
        self.state = state
        self._changed()

    def get(self, name: str) -> User | None:
        return self.state.users.get(name)

    def policies_of(self, name: str) -> Policies:
        return self.state.policies.get(name) or Policies()

    # users

    def create(self, name: str | None, info: bodies.User, *, by_super: bool) -> User:
        name = _named(name)
        if name in self.state.users:
            raise _refused("The user is existed")
        if not (info.password or "").strip():
            raise _refused("password can not be blank")
        if info.password == MASK:
            raise _refused("password can not be the text that hides passwords in answers: give it again")
        _require_unicode(username=name, password=info.password)
        is_super = _is_super(info.kind, default=False)
        if is_super and not by_super:
            raise _refused("The super user can only be create by super user", ResponseCode.SYSTEM_ERROR)
        user = User(name, (info.password or "",), is_super, _is_enabled(info.status, default=True))
        self._put(user)
        return user

    def update(self, name: str | None, info: bodies.User, *, by_super: bool) -> tuple[User, User]:
        """Before and after. Members that are left out stay; with `keepSecret` the secret there was stays active."""
        before = self.state.users.get(_named(name))
        if before is None:
            raise _refused("The user is not exist")
        _require_unicode(password=info.password)
        if before.is_super and not by_super:
            raise _refused("The super user can only be update by super user")
        is_super = _is_super(info.kind, default=before.is_super)
        if is_super and not by_super:
            raise _refused("The super user can only be update by super user", ResponseCode.SYSTEM_ERROR)
        after = replace(before, is_super=is_super, enabled=_is_enabled(info.status, default=before.enabled))
        if info.password is not None and info.password.strip() and info.password != MASK:
            kept = before.secrets[: SECRETS_MAX - 1] if info.keep_secret else ()
            after = replace(after, secrets=tuple(dict.fromkeys((info.password, *kept))))
        elif info.keep_secret is False:
            after = replace(after, secrets=before.secrets[:1])
        self._require_super_user(before, after)
        self._put(after)
        return before, after

    def delete(self, name: str | None, *, by_super: bool) -> User | None:
        """Its policies go too. Deleting an unknown user changes nothing."""
        before = self.state.users.get(_named(name))
        if before is None:
            return None
        if before.is_super and not by_super:
            raise _refused("The super user can only be update by super user")
        self._require_super_user(before, None)
        users = {key: user for key, user in self.state.users.items() if key != before.name}
        policies = {key: found for key, found in self.state.policies.items() if key != before.name}
        self._replace(users, policies)
        return before

    def ensure(self, user: User) -> bool:
        """A user of the settings: made if it is missing. Whether it was."""
        if user.name in self.state.users:
            return False
        self._put(user)
        return True

    def find(self, name_filter: str | None) -> list[User]:
        part = name_filter or ""
        return [self.state.users[name] for name in sorted(self.state.users) if part in name]

    def info(self, user: User) -> bodies.User:
        """As answers show a user: without its secrets."""
        return bodies.User(
            username=user.name,
            password=MASK,
            kind=user.kind,
            status=user.status,
            secret_count=len(user.secrets),
            last_used_ms=self.last_used_ms.get(user.name),
        )

    def _require_super_user(self, before: User, after: User | None) -> None:
        def can_administer(user: User | None) -> bool:
            return user is not None and user.is_super and user.enabled

        others = (user for name, user in self.state.users.items() if name != before.name)
        if can_administer(before) and not can_administer(after) and not any(map(can_administer, others)):
            raise _refused("The last super user can not be deleted, disabled or made a normal user")

    # policies

    def put_policies(self, subject: str | None, body: bodies.SubjectPolicies) -> str:
        """The user whose entries were added or replaced; all of them, or none."""
        name = self._subject(subject or body.subject, "The subject of {} is not exist.")
        if not body.policies or not any(policy.entries for policy in body.policies):
            raise _refused("AuthorizationException: The body of acl is null", ResponseCode.SYSTEM_ERROR)
        policies = self.policies_of(name)
        try:
            for policy in body.policies:
                entries = [
                    make_entry(entry.resource, entry.actions or (), entry.source_ips, entry.decision)
                    for entry in policy.entries
                ]
                policies = policies.with_entries(_policy_type(policy.kind), entries)
        except PolicyError as error:
            raise _refused(str(error)) from None
        self._replace(self.state.users, {**self.state.policies, name: policies})
        return name

    def delete_policies(self, subject: str | None, policy_type: str | None, resource: str | None) -> str:
        name = self._subject(subject, "The subject is not exist.")
        before = self.state.policies.get(name)
        if before is None or not before.entries:
            raise _refused("The acl is not exist.")
        after = Policies()
        if resource:
            try:
                after = before.without(_policy_type(policy_type), ResourcePattern.parse(resource))
            except PolicyError as error:
                raise _refused(str(error)) from None
            if len(after.entries) == len(before.entries):
                raise _refused("The acl is not exist.")
        kept = {key: found for key, found in self.state.policies.items() if key != name}
        self._replace(self.state.users, {**kept, name: after} if after.entries else kept)
        return name

    def subject_policies(self, subject: str | None) -> bodies.SubjectPolicies | None:
        name = self._subject(subject, "The subject is not exist.")
        return policies_body(name, self.policies_of(name))

    def find_policies(self, subject_filter: str | None, resource_filter: str | None) -> list[bodies.SubjectPolicies]:
        part = resource_filter or ""
        found = []
        for name in sorted(self.state.policies):
            if (subject_filter or "") not in SUBJECT_PREFIX + name:
                continue
            policies = self.state.policies[name]
            kept = {key: entry for key, entry in policies.entries.items() if part in str(entry.resource)}
            if (shown := policies_body(name, Policies(kept))) is not None:
                found.append(shown)
        return found

    def _subject(self, subject: str | None, unknown: str) -> str:
        if not subject or not subject.strip():
            raise _refused("The subject is null.", ResponseCode.SYSTEM_ERROR)
        kind, colon, name = subject.partition(":")
        if not colon or kind.lower() != "user":
            raise _refused("An system error occurred, please try again later.", ResponseCode.SYSTEM_ERROR)
        if name not in self.state.users:
            raise _refused(unknown.format(f"User:{name}"))
        return name

    # changes

    def _put(self, user: User) -> None:
        self._replace({**self.state.users, user.name: user}, self.state.policies)

    def _replace(self, users: Mapping[str, User], policies: Mapping[str, Policies]) -> None:
        self.state = UserState(users, policies, self.state.version + 1)
        self._changed()

    def _changed(self) -> None:
        for listener in self.listeners:
            listener()


def _named(name: str | None) -> str:
    if not name or not name.strip():
        raise _refused("The username is blank", ResponseCode.INVALID_PARAMETER)
    return name


def _require_unicode(**texts: str | None) -> None:
    """Signatures and files are UTF-8: what it does not have could neither sign nor be saved."""
    for what, text in texts.items():
        if text is not None and not is_unicode(text):
            raise _refused(f"The {what} is not valid Unicode")


def _is_super(kind: str | None, *, default: bool) -> bool:
    if not kind:
        return default
    if kind.lower() not in ("super", "normal"):
        raise _refused(f"The user type {kind} is neither Super nor Normal", ResponseCode.INVALID_PARAMETER)
    return kind.lower() == "super"


def _is_enabled(status: str | None, *, default: bool) -> bool:
    if not status:
        return default
    if status.lower() not in _STATUSES:
        raise _refused(f"The user status {status} is neither enable nor disable", ResponseCode.INVALID_PARAMETER)
    return _STATUSES[status.lower()]


def _policy_type(text: str | None) -> PolicyType:
    for each in PolicyType:
        if not text or text.lower() == each.value.lower():
            return each
    raise PolicyError(f"The policy type {text} is neither Custom nor Default.")


def policies_body(name: str, policies: Policies) -> bodies.SubjectPolicies | None:
    """As answers show them; None where there is none."""
    found = []
    for policy_type in PolicyType:
        entries = [entry for (kind, _), entry in policies.entries.items() if kind is policy_type]
        if entries:
            found.append(bodies.Policy(kind=policy_type.value, entries=tuple(map(_entry_body, entries))))
    return bodies.SubjectPolicies(subject=SUBJECT_PREFIX + name, policies=tuple(found)) if found else None


def _entry_body(entry: PolicyEntry) -> bodies.PolicyEntry:
    return bodies.PolicyEntry(
        resource=str(entry.resource),
        actions=entry.action_texts,
        source_ips=entry.sources.texts or None,
        decision=entry.decision,
    )


def migrated(rules: PlainRules, state: UserState) -> UserState:
    """Accounts of ACL 1.0 as users and policies. Users that exist are left alone; white lists are dropped."""
    users, policies = dict(state.users), dict(state.policies)
    for account in rules.accounts.values():
        if account.access_key in users:
            continue
        users[account.access_key] = User(account.access_key, (account.secret_key,), account.admin)
        custom = [_migrated_entry(str(each), given) for each, given in account.permissions.items()]
        defaults = [
            _migrated_entry(f"{kind.value}:*", parse_permission(text))
            for kind, text in (
                (ResourceKind.TOPIC, account.default_topic),
                (ResourceKind.GROUP, account.default_group),
            )
            if text
        ]
        found = Policies().with_entries(PolicyType.CUSTOM, custom).with_entries(PolicyType.DEFAULT, defaults)
        if found.entries:
            policies[account.access_key] = found
    if users == state.users:
        return state
    return UserState(users, policies, state.version + 1)


def _migrated_entry(resource: str, permission: Permission) -> PolicyEntry:
    if not permission:
        return make_entry(resource, ("All",), None, "Deny")
    words = [word for bit, word in ((Permission.PUB, "Pub"), (Permission.SUB, "Sub")) if permission & bit]
    return make_entry(resource, words, None, "Allow")
