"""Access control of one server: authenticates requests, authorizes them by ACL 1.0 or 2.0, records what it decides.

Brokers and NameServers ask `check` before every handler. Admission asks `denial` again for pulls that were held. All
decisions are remembered until accounts, users or policies change; then `listeners` are called, and brokers bump their
generation.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from rocketq.access import plain, policies
from rocketq.access.addresses import is_loopback
from rocketq.access.audit import AuditLog, AuditRecord
from rocketq.access.config import AccessConfig, codes_of
from rocketq.access.failures import FailureLimits, FreshSignatures
from rocketq.access.plain import PlainRules, Verdict
from rocketq.access.policies import User
from rocketq.access.rights import RIGHTS, Need, StoredTopics, needs_of
from rocketq.access.users import UserTable
from rocketq.errors import RemoteProtocolError
from rocketq.kernel.signatures import Account, Accounts
from rocketq.protocol.acl import ACCESS_KEY, NONCE, SIGNED_AT, is_signed
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.runtime.clock import Clock

log = logging.getLogger(__name__)

_DECISIONS_MAX: Final = 50_000
_TRUSTED: Final = "white list"


@dataclass(frozen=True, slots=True)
class Denial:
    """Why a request is rejected, as it is answered and recorded."""

    code: int
    remark: str
    user: str | None = None
    need: Need | None = None
    rule: str = ""
    is_failure: bool = False
    """The signature was wrong or the user unknown: it counts against the source."""

    def answer(self, request: Command) -> Command:
        """Always with a JSON header, as Apache's brokers answer."""
        return replace(request.answer(self.code, remark=self.remark), form=HeaderForm.JSON)


@dataclass(frozen=True, slots=True)
class Signer:
    """Who sends a request. `trusted`: the source is on a white list, nothing else is checked."""

    name: str | None = None
    trusted: bool = False


class Model(Protocol):
    """ACL 1.0 or 2.0."""

    @property
    def depends_on_source(self) -> bool: ...

    def accounts(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Who may sign, with the secrets."""
        ...

    def authenticate(self, request: Command, source: str) -> Signer | Denial: ...

    def decide(self, signer: Signer, source: str, code: int, needs: tuple[Need, ...] | None) -> Verdict | Denial: ...

    def is_super(self, name: str | None) -> bool: ...

    def signer(self, name: str | None, source: str) -> Signer:
        """Who was authenticated before, by this name."""
        ...


class PlainModel:
    """ACL 1.0. `rules` is replaced whole."""

    def __init__(self, rules: PlainRules, inner: tuple[str, str] | None = None) -> None:
        self.rules = rules
        self._inner = inner

    @property
    def depends_on_source(self) -> bool:
        return self.rules.depends_on_source

    def accounts(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        for account in self.rules.accounts.values():
            yield account.access_key, (account.secret_key,)
        if self._inner is not None and self._inner[0] not in self.rules.accounts:
            yield self._inner[0], (self._inner[1],)

    def is_super(self, name: str | None) -> bool:
        if self._is_inner(name):
            return True
        account = self.rules.accounts.get(name or "")
        return account is not None and account.admin

    def signer(self, name: str | None, source: str) -> Signer:
        account = self.rules.accounts.get(name or "")
        is_white = self.rules.is_white(source) or (account is not None and account.white_address.matches(source))
        return Signer(name, trusted=is_white)

    def _is_inner(self, name: str | None) -> bool:
        return self._inner is not None and name == self._inner[0] and name not in self.rules.accounts

    def authenticate(self, request: Command, source: str) -> Signer | Denial:
        access_key = request.ext_fields.get(ACCESS_KEY)
        if self.rules.is_white(source):
            return Signer(access_key, trusted=True)
        if access_key is None:
            return _plain_denial("No accessKey is configured", None)
        if self._is_inner(access_key):
            assert self._inner is not None
            secret = self._inner[1]
        else:
            account = self.rules.accounts.get(access_key)
            if account is None:
                return _plain_denial(f"No acl config for {access_key}", access_key, is_failure=True)
            if account.white_address.matches(source):
                return Signer(access_key, trusted=True)
            secret = account.secret_key
        if not is_signed(request, secret):
            return _plain_denial(f"Check signature failed for accessKey={access_key}", access_key, is_failure=True)
        return Signer(access_key)

    def decide(self, signer: Signer, source: str, code: int, needs: tuple[Need, ...] | None) -> Verdict | Denial:
        if signer.trusted:
            return Verdict(True, _TRUSTED)
        if self._is_inner(signer.name):
            return Verdict(True, "innerClientAuthenticationCredentials")
        account = self.rules.accounts.get(signer.name or "")
        if account is None:
            return _plain_denial(f"No PlainAccessResource for accessKey={signer.name}", signer.name)
        verdict = plain.decide(self.rules, account, source, code, needs)
        if verdict.allowed:
            return verdict
        need = next((each for each in needs or () if not _allows(account, each)), None)
        return replace(_plain_denial(verdict.reason, signer.name), need=need, rule=verdict.rule)


def _allows(account: plain.PlainAccount, need: Need) -> bool:
    return bool(plain.needed_permission(need)) and plain.decide_one(account, need).allowed


_THROWN_AT: Final = "org.apache.rocketmq.acl.plain.PlainPermissionManager.validate(PlainPermissionManager.java:663)"


def _plain_denial(text: str, user: str | None, *, is_failure: bool = False) -> Denial:
    """In the form of a Java exception: 4.x clients and tools look for its name."""
    remark = f"org.apache.rocketmq.acl.common.AclException: {text}, {_THROWN_AT}"
    return Denial(ResponseCode.SYSTEM_ERROR, remark, user, is_failure=is_failure)


class UserModel:
    """ACL 2.0."""

    def __init__(
        self, config: AccessConfig, users: UserTable, cluster: str, inner: tuple[str, str] | None = None
    ) -> None:
        """`inner`: what servers sign their own requests with; a user of that name counts instead."""
        self._inner = None if inner is None else User(inner[0], (inner[1],), is_super=True)
        self._authorizes = config.authorization
        self._users = users
        self._cluster = cluster
        self._unsigned = codes_of(config.authentication_whitelist)
        self._unlimited = codes_of(config.authorization_whitelist)

    @property
    def depends_on_source(self) -> bool:
        return any(found.depends_on_source for found in self._users.state.policies.values())

    def accounts(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        for user in self._users.state.users.values():
            if user.enabled:
                yield user.name, user.secrets
        if self._inner is not None and self._inner.name not in self._users.state.users:
            yield self._inner.name, self._inner.secrets

    def _find(self, name: str | None) -> User | None:
        found = self._users.get(name or "")
        return self._inner if found is None and self._inner is not None and name == self._inner.name else found

    def is_super(self, name: str | None) -> bool:
        user = self._find(name)
        return user is not None and user.is_super

    def signer(self, name: str | None, source: str) -> Signer:
        return Signer(name)

    def authenticate(self, request: Command, source: str) -> Signer | Denial:
        name = request.ext_fields.get(ACCESS_KEY)
        user = self._find(name)
        if user is not None and user.enabled and _signed_by(request, user.secrets):
            return Signer(name)
        if request.code in self._unsigned:
            return Signer()  # whoever is named without a right signature is nobody
        if not name:
            return _denial("username cannot be null.", None)
        if user is None:
            return _denial(f"User:{name} is not found.", name, is_failure=True)
        if not user.enabled:
            return _denial(f"User:{name} is disabled.", name)
        return _denial("check signature failed.", name, is_failure=True)

    def decide(self, signer: Signer, source: str, code: int, needs: tuple[Need, ...] | None) -> Verdict | Denial:
        if not self._authorizes:
            return self._unauthorized(signer, needs, code)
        if code in self._unlimited:
            return Verdict(True, "authorizationWhitelist")
        if signer.name is None:
            if needs == ():
                return Verdict(True, "authenticationWhitelist")
            return _denial("Authorization failed. Please verify your access rights and try again.", None)
        user = self._find(signer.name)
        if user is None:
            return _denial(f"User:{signer.name} is not found.", signer.name)
        if not user.enabled:
            return _denial(f"User:{signer.name} is disabled.", signer.name)
        verdict, need = policies.decide(user, self._users.policies_of(user.name), source, needs)
        if verdict.allowed:
            return verdict
        remark = policies.denied_text(user.name, need, self._cluster, source, verdict.reason)
        return replace(_denial(remark, user.name), need=need, rule=verdict.rule)

    def _unauthorized(self, signer: Signer, needs: tuple[Need, ...] | None, code: int) -> Verdict | Denial:
        """With authentication alone every user may do everything but change users, and what super users may."""
        if code not in _USER_CODES or self.is_super(signer.name):
            return Verdict(True, "authorizationEnabled=false")
        user = signer.name or ""
        return _denial(f"User:{user} has no permission to access Cluster:{self._cluster}, only super users.", user)


def _signed_by(request: Command, secrets: tuple[str, ...]) -> bool:
    found = [is_signed(request, secret) for secret in secrets]  # all are compared, whichever fits
    return any(found)


_USER_CODES: Final = frozenset(range(3001, 3011))


def _denial(remark: str, user: str | None, *, is_failure: bool = False) -> Denial:
    return Denial(ResponseCode.NO_PERMISSION, remark, user, is_failure=is_failure)


class AccessControl:
    """`check` decides on one request. Everything runs on one thread; time comes from the clock."""

    def __init__(self, config: AccessConfig, model: Model, cluster: str, clock: Clock, audit: AuditLog | None) -> None:
        self.config = config
        self.model = model
        self.cluster = cluster
        self.accounts = Accounts()
        """The kernel's table: replaced entries, never another table."""
        self.listeners: list[Callable[[], None]] = []
        self.counts: Counter[str] = Counter()
        """By what was decided: allowed, denied, unauthenticated, blocked, dry-run."""
        self.seen: Callable[[str, int], None] = lambda user, now_ms: None
        self._clock = clock
        self._audit = audit
        self._failures = FailureLimits(config.failures_max, config.block_seconds * 1000)
        self._fresh = FreshSignatures(config.fresh_seconds * 1000)
        self._decisions: dict[tuple[Signer, str, int, tuple[Need, ...] | None], Verdict | Denial] = {}
        self._known: dict[str, tuple[str, ...]] = {}
        self._unrecorded = 0
        self.refresh()

        self._unsigned = codes_of(config.authentication_whitelist) if config.uses_users else frozenset()
        self._unlimited = codes_of(config.authorization_whitelist) if config.uses_users else frozenset()

        self.refresh()

    @property
    def depends_on_source(self) -> bool:
        """Whether decisions differ between sources, or between request codes that need the same."""
        return bool(self._unlimited or self._unsigned) or self.model.depends_on_source

    def is_unlimited(self, codes: frozenset[int]) -> bool:
        """Whether requests of one of these codes are not authorized."""
        return not codes.isdisjoint(self._unlimited)

    def principal_of(self, request: Command) -> str | None:
        """Who signed a request that has passed check(); None where it may be anybody."""
        if request.code not in self._unsigned:
            return request.ext_fields.get(ACCESS_KEY)
        signer = self.model.authenticate(request, "")
        return signer.name if isinstance(signer, Signer) else None

    def refresh(self) -> None:
        """Accounts, users or policies have changed: what was decided before counts no more."""
        self._decisions.clear()
        known = dict(self.model.accounts()) if not self.config.require_fresh else {}
        for name in self._known.keys() - known.keys():
            self.accounts.remove(name.encode())
        for name, secrets in known.items():
            if self._known.get(name) != secrets:
                self.accounts.put(Account(name.encode(), tuple(secret.encode() for secret in secrets), name))
        self._known = known
        for listener in self.listeners:
            listener()

    def check(
        self,
        request: Command,
        source: str,
        stored: StoredTopics | None = None,
        *,
        is_served: Callable[[], bool] = lambda: True,
        serves_routes: bool = False,
    ) -> Denial | None:
        """Why a request is rejected, or None. `is_served`: whether a handler exists for its code, which has no row.
        `serves_routes`: the server is a NameServer, whose routes may be read by everybody."""
        row = RIGHTS.get(request.code)
        if serves_routes and self.config.anonymous_routes and row is not None and row.anonymous:
            return None
        signer = self.authenticate(request, source)
        if isinstance(signer, Signer):
            return self._authorize(signer, request, source, stored, is_served)
        return self._denied(signer, request.code, source)

    def authenticate(self, request: Command, source: str) -> Signer | Denial:
        now_ms = self._clock.now_ms()
        blocked_ms = self._failures.blocked_ms(source, now_ms)
        if blocked_ms:
            self.counts["blocked"] += 1
            return _denial(f"too many wrong signatures from {source}, wait {blocked_ms // 1000 + 1} s", None)
        signer = self.model.authenticate(request, source)
        if isinstance(signer, Denial):
            counts = signer.is_failure and (self.config.block_loopback or not is_loopback(source))
            if counts and self._failures.failed(source, now_ms):
                log.warning("source blocked source=%s reason=too many wrong signatures", source)
            return signer
        if signer.name is not None and not signer.trusted:
            if self.config.require_fresh:
                fields = request.ext_fields
                fault = self._fresh.fault(signer.name, fields.get(SIGNED_AT), fields.get(NONCE), now_ms)
                if fault is not None:
                    return _denial(f"check signature failed: {fault}.", signer.name)
            self.seen(signer.name, now_ms)
        return signer

    def _authorize(
        self,
        signer: Signer,
        request: Command,
        source: str,
        stored: StoredTopics | None,
        is_served: Callable[[], bool],
    ) -> Denial | None:
        try:
            needs = needs_of(request, self.cluster, stored)
        except RemoteProtocolError:
            return None  # the handler reads the same fields, and says what is wrong with them
        if needs is None and request.code not in RIGHTS and not is_served():
            return None  # the answer is code 3 for everybody who may sign
        return self.authorize(signer, source, request.code, needs)

    def authorize(self, signer: Signer, source: str, code: int, needs: tuple[Need, ...] | None) -> Denial | None:
        """The decision, for whoever knows the needs already, such as gRPC calls; it is counted and recorded."""
        decision = self.decide(signer, source, code, needs)
        if isinstance(decision, Denial):
            return self._denied(decision, code, source)
        self._allowed(decision, signer, code, source, needs)
        return None

    def denial(self, signer: Signer, source: str, code: int, needs: tuple[Need, ...] | None) -> Denial | None:
        """The decision alone, about a request that is checked besides: grants and held pulls."""
        decision = self.decide(signer, source, code, needs)
        return decision if isinstance(decision, Denial) and not self.config.dry_run else None

    def decide(self, signer: Signer, source: str, code: int, needs: tuple[Need, ...] | None) -> Verdict | Denial:
        """Remembered until something changes."""
        key = signer, source, code, needs
        decision = self._decisions.get(key)
        if decision is None:
            if len(self._decisions) >= _DECISIONS_MAX:
                self._decisions.clear()
            decision = self._decisions[key] = self.model.decide(signer, source, code, needs)
        return decision

    def _denied(self, denial: Denial, code: int, source: str) -> Denial | None:
        dry_run = self.config.dry_run
        self.counts["dry-run" if dry_run else "denied" if not denial.is_failure else "unauthenticated"] += 1
        self._record("dry-run" if dry_run else "deny", denial.user, code, source, denial.need, denial.rule,
                     denial.remark)  # fmt: skip
        return None if dry_run else denial

    def _allowed(
        self, verdict: Verdict, signer: Signer, code: int, source: str, needs: tuple[Need, ...] | None
    ) -> None:
        self.counts["allowed"] += 1
        self._unrecorded += 1
        if self.config.audit_grants and self._unrecorded >= self.config.audit_grants:
            self._unrecorded = 0
            self._record("allow", signer.name, code, source, needs[0] if needs else None, verdict.rule, "")

    def _record(
        self, event: str, user: str | None, code: int, source: str, need: Need | None, rule: str, reason: str
    ) -> None:
        if self._audit is None:
            return
        self._audit.write(
            AuditRecord(
                event=event,
                time_ms=self._clock.now_ms(),
                source=source,
                user=user,
                code=code,
                resource="" if need is None else str(need.resource),
                action="" if need is None else need.action.value,
                rule=rule,
                reason=reason,
            )
        )

    def record_change(self, user: str | None, source: str, code: int, details: dict[str, object]) -> None:
        """A change of users, accounts or policies, with before and after; without secrets."""
        if self._audit is not None:
            now_ms = self._clock.now_ms()
            self._audit.write(
                AuditRecord(event="change", time_ms=now_ms, source=source, user=user, code=code, details=details)
            )
