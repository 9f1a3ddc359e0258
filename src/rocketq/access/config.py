"""Settings of access control, with Apache's key for each where Apache has one. Brokers and NameServers share them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from rocketq.access.addresses import is_loopback
from rocketq.errors import ConfigError
from rocketq.protocol.acl import Credentials, is_unicode
from rocketq.protocol.config_text import parse_value

log = logging.getLogger(__name__)

_AUTH: Final = "org.apache.rocketmq.auth"
PROVIDERS: Final[Mapping[str, frozenset[str]]] = {
    "authenticationProvider": frozenset({f"{_AUTH}.authentication.provider.DefaultAuthenticationProvider"}),
    "authorizationProvider": frozenset({f"{_AUTH}.authorization.provider.DefaultAuthorizationProvider"}),
    "authenticationMetadataProvider": frozenset(
        {f"{_AUTH}.authentication.provider.LocalAuthenticationMetadataProvider"}
    ),
    "authorizationMetadataProvider": frozenset({f"{_AUTH}.authorization.provider.LocalAuthorizationMetadataProvider"}),
    "authenticationStrategy": frozenset(
        f"{_AUTH}.authentication.strategy.{kind}AuthenticationStrategy" for kind in ("Stateless", "Stateful")
    ),
    "authorizationStrategy": frozenset(
        f"{_AUTH}.authorization.strategy.{kind}AuthorizationStrategy" for kind in ("Stateless", "Stateful")
    ),
}
"""The classes of Apache's brokers that are accepted. Both strategies are stateless here: every request is checked."""


def option(key: str, default: Any, about: str) -> Any:
    """A field that broker.conf and namesrv.conf call `key`; `about` is its line in the reference."""
    return field(default=default, metadata={"key": key, "about": about})


def secret_option(key: str, about: str) -> Any:
    """A text that holds a secret: no representation shows it."""
    return field(default="", repr=False, metadata={"key": key, "about": about})


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessConfig:
    """Who may do what, and how that is checked."""

    home: str = option(
        "rocketmqHome",
        "",
        "Directory with `conf/plain_acl.yml` and `conf/acl/`; without it the environment's ROCKETMQ_HOME.",
    )
    acl_enabled: bool = option("aclEnable", False, "Check requests by the accounts of ACL 1.0.")
    acl_file: str = option("aclFile", "", "One YAML file of accounts in place of those below `rocketmqHome`.")
    authentication: bool = option("authenticationEnabled", False, "Require signatures of users (ACL 2.0).")
    authorization: bool = option(
        "authorizationEnabled", False, "Check the users' policies; needs `authenticationEnabled`."
    )
    authentication_provider: str = option("authenticationProvider", "", "Accepted: Apache's default class.")
    authorization_provider: str = option("authorizationProvider", "", "Accepted: Apache's default class.")
    authentication_metadata: str = option("authenticationMetadataProvider", "", "Accepted: Apache's local class.")
    authorization_metadata: str = option("authorizationMetadataProvider", "", "Accepted: Apache's local class.")
    authentication_strategy: str = option(
        "authenticationStrategy", "", "Accepted: Apache's two classes; every request is checked with both."
    )
    authorization_strategy: str = option(
        "authorizationStrategy", "", "Accepted: Apache's two classes; every request is checked with both."
    )
    users_path: str = option(
        "authConfigPath", "", "Directory of users, policies and the master key; without it `config` below the store."
    )
    init_user: str = secret_option(
        "initAuthenticationUser",
        'First super user: `{"username":"...","password":"..."}`. An existing user is left alone.',
    )
    inner: str = secret_option(
        "innerClientAuthenticationCredentials",
        'What the broker signs its own requests with: `{"accessKey":"...","secretKey":"..."}`.',
    )
    authentication_whitelist: str = option(
        "authenticationWhitelist", "", "Request codes that need no signature, with commas."
    )
    authorization_whitelist: str = option(
        "authorizationWhitelist", "", "Request codes that need no policy, with commas."
    )
    migrate: bool = option(
        "migrateAuthFromV1Enabled", False, "Make users and policies of the accounts of ACL 1.0 at the start."
    )
    allow_anonymous: bool = option(
        "allowAnonymous", False, "Serve at addresses that are not loopback without access control."
    )
    anonymous_routes: bool = option(
        "anonymousRoutes", True, "Answer route requests to the NameServer without credentials."
    )
    dry_run: bool = option("access.dryRun", False, "Log what would be denied, and let it pass.")
    key_file: str = option("accessKeyFile", "", "Master key of stored secrets; made at the first start.")
    key_command: str = option(
        "accessKeyCommand", "", "Command that prints the master key in Base64, in place of the file."
    )
    audit_file: str = option("accessAuditFile", "", "Audit log; without it `logs/auth_audit.log` below the store.")
    audit_bytes_max: int = option(
        "accessAuditFileBytes", 64 << 20, "Size at which the audit log is rotated; 5 older files are kept."
    )
    audit_grants: int = option("accessAuditGrants", 100, "One of so many allowed requests is recorded; 0: none.")
    failures_max: int = option(
        "accessFailuresMax", 100, "Wrong signatures of a source within a minute, beyond which it is blocked; 0: never."
    )
    block_loopback: bool = option("accessBlockLoopback", False, "Block loopback addresses, too.")
    block_seconds: int = option("accessBlockSeconds", 60, "How long a source stays blocked.")
    require_fresh: bool = option(
        "requireFreshSignature",
        False,
        "Reject signatures without a signed time and nonce: only RocketQ's own clients send them.",
    )
    fresh_seconds: int = option("freshSignatureSeconds", 300, "How old such a signature may be.")

    def __post_init__(self) -> None:
        if self.authorization and not self.authentication:
            raise ConfigError(
                "authorizationEnabled=true needs authenticationEnabled=true: anybody could claim any user"
            )
        for item in fields(self):
            key, value = item.metadata["key"], getattr(self, item.name)
            if key in PROVIDERS and value and value not in PROVIDERS[key]:
                raise ConfigError(f"{key}={value} is not supported: leave it out, or use {min(PROVIDERS[key])}")
            if isinstance(value, int) and value < 0:
                raise ConfigError(f"{key} must not be negative: {value}")
        if self.fresh_seconds == 0 or self.block_seconds == 0:
            raise ConfigError("freshSignatureSeconds and accessBlockSeconds are above 0")
        codes_of(self.authentication_whitelist)
        codes_of(self.authorization_whitelist)
        _ = self.inner_credentials, self.first_user

    @classmethod
    def from_java(cls, settings: Mapping[str, str]) -> AccessConfig:
        """From a config file's keys; others are left to the caller."""
        known = keys()
        return cls(
            **{
                known[key]: parse_value(key, text, _DEFAULTS[known[key]])
                for key, text in settings.items()
                if key in known
            }
        )

    def to_java(self) -> dict[str, str]:
        """Every key with its value, as texts; what holds secrets is masked."""
        return {item.metadata["key"]: _to_text(item.metadata["key"], getattr(self, item.name)) for item in fields(self)}

    @property
    def is_on(self) -> bool:
        """Whether requests must be signed."""
        return self.acl_enabled or self.authentication

    @property
    def uses_users(self) -> bool:
        """Whether users and policies decide (ACL 2.0). It wins over aclEnable, which brokers of 5.x ignore."""
        return self.authentication

    @property
    def inner_credentials(self) -> Credentials | None:
        """What this broker signs its own requests with."""
        named = _pair(self.inner, "innerClientAuthenticationCredentials", "accessKey", "secretKey")
        return None if named is None else Credentials(*named, fresh=self.require_fresh)

    @property
    def first_user(self) -> tuple[str, str] | None:
        return _pair(self.init_user, "initAuthenticationUser", "username", "password")


def require_safe_address(host: str, config: AccessConfig, what: str) -> None:
    """ConfigError for a server that other machines reach and that checks nothing. The log says which it is."""
    if config.is_on:
        mode = "users and policies" if config.uses_users else "accounts of ACL 1.0"
        log.info("%s at %s: requests are checked by %s%s", what, host, mode, " (dry run)" if config.dry_run else "")
        return
    if host == "localhost" or is_loopback(host):
        log.info("%s at %s: open to everybody on this machine, access control is off", what, host)
        return
    if not config.allow_anonymous:
        raise ConfigError(
            f"{what} would listen at {host} without access control: set authenticationEnabled=true or aclEnable=true, "
            "or allowAnonymous=true to serve everybody who reaches it"
        )
    log.warning("%s at %s: OPEN TO EVERYBODY WHO REACHES IT (allowAnonymous=true)", what, host)


SECRET_KEYS: Final = frozenset({"initAuthenticationUser", "innerClientAuthenticationCredentials"})
MASK: Final = "******"


def keys() -> dict[str, str]:
    """The keys, and our names of them."""
    return {item.metadata["key"]: item.name for item in fields(AccessConfig)}


_DEFAULTS: Final = {item.name: item.default for item in fields(AccessConfig)}


def codes_of(whitelist: str) -> frozenset[int]:
    """The request codes of a whitelist; full names of gRPC messages stand beside them."""
    found = set()
    for text in whitelist.split(","):
        if text.strip().isdecimal():
            found.add(int(text))
        elif text.strip() and not text.strip().replace(".", "").replace("_", "").isalnum():
            raise ConfigError(f"whitelist: {text.strip()!r} is neither a request code nor the name of a gRPC message")
    return frozenset(found)


def _pair(text: str, key: str, name: str, secret: str) -> tuple[str, str] | None:
    """Two members of a JSON object; the error does not repeat the text."""
    if not text.strip():
        return None
    try:
        found = json.loads(text)
        pair = str(found[name]).strip(), str(found[secret])
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f'{key} is not {{"{name}":"...","{secret}":"..."}}') from None
    if not all(pair):
        raise ConfigError(f"{key}: {name} and {secret} must not be blank")
    if not all(map(is_unicode, pair)):
        raise ConfigError(f"{key}: {name} or {secret} is not valid Unicode")
    return pair


def _to_text(key: str, value: Any) -> str:
    if key in SECRET_KEYS:
        return MASK if value else ""
    return str(value).lower() if isinstance(value, bool) else str(value)
