"""Settings of the console."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import Final

from rocketq.client.session import SessionConfig
from rocketq.errors import ConfigError

PORT: Final = 9880
LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")


class Login(StrEnum):
    """How people sign in: not at all, as a user of a file, or as a user of the cluster."""

    NONE = "none"
    USERS = "users"
    CLUSTER = "cluster"


class Role(IntEnum):
    """What a person may do; each role includes those before it."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def word(self) -> str:
        return self.name.lower()


def role_of(word: str) -> Role:
    """ConfigError for a word that names no role."""
    try:
        return Role[word.upper()]
    except KeyError:
        raise ConfigError(f"{word!r} is no role: viewer, operator or admin") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterTarget:
    """One cluster to serve. `name` is its place in addresses of pages."""

    name: str
    name_servers: tuple[str, ...]
    session: SessionConfig = field(default_factory=SessionConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleConfig:
    clusters: tuple[ClusterTarget, ...]
    data_dir: Path
    host: str = "127.0.0.1"
    port: int = PORT
    base_path: str = "/"
    read_only: bool = False
    login: Login = Login.NONE
    users_file: Path | None = None
    insecure: bool = False
    cert: Path | None = None
    key: Path | None = None
    sample_s: float = 5.0
    idle_s: float = 30.0
    broker_timeout_ms: int = 3_000
    history_bytes_max: int = 256 << 20
    private_webhooks: bool = False
    """Whether webhooks may go to loopback and link-local addresses."""
    host_names: tuple[str, ...] = ()
    """Names by which browsers may reach it, besides its address."""
    proxy_user_header: str | None = None
    proxy_addrs: tuple[str, ...] = ()
    proxy_role: Role = Role.VIEWER
    session_s: int = 12 * 3600
    masks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By topic pattern, JSON fields of bodies that viewers do not see; an empty tuple hides the whole body."""

    def __post_init__(self) -> None:
        if not self.clusters:
            raise ConfigError("the console needs a cluster to serve: -n HOST:PORT")
        if not self.base_path.startswith("/"):
            raise ConfigError(f"--base-path {self.base_path!r} must start with /")
        if not self.base_path.endswith("/"):
            object.__setattr__(self, "base_path", self.base_path + "/")
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--cert and --key go together")
        if self.login is Login.USERS and self.users_file is None:
            raise ConfigError("--login users needs --users FILE")
        if self.proxy_user_header and not self.proxy_addrs:
            raise ConfigError("--proxy-user-header needs --proxy-addr: only these may name the user")
        has_login = self.login is not Login.NONE or self.proxy_user_header is not None
        if not self.is_loopback and not self.insecure:
            if not has_login:
                raise ConfigError(
                    f"refusing to serve {self.host} without a login: set --users FILE or --login cluster, or --insecure"
                )
            if self.cert is None and not self.proxy_addrs:
                raise ConfigError(f"refusing to serve {self.host} without TLS: set --cert and --key, or --insecure")

    @property
    def is_loopback(self) -> bool:
        if self.host in LOOPBACK_NAMES:
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def scheme(self) -> str:
        return "https" if self.cert is not None else "http"
