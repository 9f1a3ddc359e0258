"""Who may sign in and what they may do: a file of users, sessions, tokens, and pauses after failures."""

from __future__ import annotations

import base64
import fnmatch
import hashlib
import hmac
import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rocketq.console.config import Role, role_of
from rocketq.errors import ConfigError, RocketQError
from rocketq.protocol.acl import Credentials

SCRYPT_N: Final = 1 << 14
FAILURES_MAX: Final = 5
PAUSE_S: Final = 30.0
TOKEN_PREFIX: Final = "rqc_"
_SESSIONS_MAX: Final = 10_000


class SignInError(RocketQError):
    """The name or password is wrong, or the user is disabled."""


class SignInPausedError(RocketQError):
    """Too many failures: sign-in is paused."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(f"too many failed sign-ins: try again in {wait_s:.0f} s")
        self.wait_s = wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """`clusters` and `topics` are patterns that the role is limited to."""

    name: str
    role: Role
    clusters: tuple[str, ...] = ("*",)
    topics: tuple[str, ...] = ("*",)
    credentials: Credentials | None = field(default=None, repr=False)

    def may_see(self, cluster: str) -> bool:
        return any(fnmatch.fnmatchcase(cluster, pattern) for pattern in self.clusters)

    def may_touch(self, topic: str) -> bool:
        return any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)


@dataclass(slots=True, kw_only=True)
class Session:
    """One signed-in browser. `csrf` is the token that every changing request must carry."""

    id: str
    user: User
    csrf: str
    ends_s: float


def hash_password(password: str) -> str:
    """`scrypt$N$salt$hash`, for the file of users."""
    salt = secrets.token_bytes(16)
    digest = hashlib.scrypt(password.encode(), salt=salt, n=SCRYPT_N, r=8, p=1, maxmem=64 << 20)
    return f"scrypt${SCRYPT_N}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def check_password(password: str, hashed: str) -> bool:
    try:
        kind, cost, salt, digest = hashed.split("$")
        if kind != "scrypt":
            return False
        found = hashlib.scrypt(password.encode(), salt=base64.b64decode(salt), n=int(cost), r=8, p=1, maxmem=256 << 20)
        return hmac.compare_digest(found, base64.b64decode(digest))
    except ValueError:
        return False


class UsersFile:
    """`{"users": {"ann": {"password": "scrypt$...", "role": "operator", "clusters": ["*"], "topics": ["*"]}},
    "tokens": {"<sha256 of the token>": {"name": "ci", "role": "viewer", "ends_s": 1790000000}}}`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read()

    def _read(self) -> dict[str, Any]:
        try:
            value = json.loads(self._path.read_text()) if self._path.exists() else {}
        except (OSError, ValueError) as error:
            raise ConfigError(f"users file {self._path}: {error}") from None
        if not isinstance(value, dict) or not isinstance(value.get("users", {}), dict):
            raise ConfigError(f'users file {self._path}: an object with "users" is expected')
        return value

    def check(self, name: str, password: str) -> User:
        entry = self._read().get("users", {}).get(name)
        hashed = entry.get("password", "") if isinstance(entry, dict) else hash_dummy()
        if not check_password(password, hashed) or not isinstance(entry, dict) or entry.get("disabled"):
            raise SignInError("the name or the password is wrong")
        return _user(name, entry)

    def by_token(self, token: str, now_s: float) -> User | None:
        entry = self._read().get("tokens", {}).get(hashlib.sha256(token.encode()).hexdigest())
        if not isinstance(entry, dict) or float(entry.get("ends_s", 0)) < now_s:
            return None
        return _user(f"token {entry.get('name', '')}", entry)

    def set_user(self, name: str, password: str, role: Role) -> None:
        value = self._read()
        value.setdefault("users", {})[name] = {"password": hash_password(password), "role": role.word}
        self._write(value)

    def add_token(self, name: str, role: Role, ends_s: float) -> str:
        """The new token; the file has only its hash."""
        token = TOKEN_PREFIX + secrets.token_urlsafe(32)
        value = self._read()
        key = hashlib.sha256(token.encode()).hexdigest()
        value.setdefault("tokens", {})[key] = {"name": name, "role": role.word, "ends_s": ends_s}
        self._write(value)
        return token

    def _write(self, value: Mapping[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self._path.with_name(self._path.name + ".tmp")
        scratch.touch(mode=0o600)
        scratch.write_text(json.dumps(value, indent=2))
        scratch.replace(self._path)


def hash_dummy() -> str:
    """A hash of no password: an unknown user takes as long to refuse as a known one."""
    return f"scrypt${SCRYPT_N}${base64.b64encode(bytes(16)).decode()}${base64.b64encode(bytes(64)).decode()}"


def _user(name: str, entry: Mapping[str, Any]) -> User:
    return User(
        name=name,
        role=role_of(str(entry.get("role", "viewer"))),
        clusters=tuple(entry.get("clusters", ["*"])),
        topics=tuple(entry.get("topics", ["*"])),
    )


class Sessions:
    """Kept in memory: a restart ends all sessions. Times are arguments, in seconds."""

    def __init__(self, life_s: float) -> None:
        self._life_s = life_s
        self._by_id: dict[str, Session] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def open(self, user: User, now_s: float) -> Session:
        if len(self._by_id) >= _SESSIONS_MAX:
            self._by_id = {name: one for name, one in self._by_id.items() if one.ends_s > now_s}
            while len(self._by_id) >= _SESSIONS_MAX:
                self._by_id.pop(next(iter(self._by_id)))
        session = Session(
            id=secrets.token_urlsafe(32), user=user, csrf=secrets.token_urlsafe(32), ends_s=now_s + self._life_s
        )
        self._by_id[session.id] = session
        return session

    def get(self, session_id: str | None, now_s: float) -> Session | None:
        session = self._by_id.get(session_id or "")
        if session is None or session.ends_s <= now_s:
            return None
        return session

    def close(self, session_id: str | None) -> None:
        self._by_id.pop(session_id or "", None)

    def require_calm(self, source: str, now_s: float) -> None:
        """SignInPausedError after five failures, for half a minute."""
        count, since_s = self._failures.get(source, (0, 0.0))
        if count >= FAILURES_MAX and now_s < since_s + PAUSE_S:
            raise SignInPausedError(since_s + PAUSE_S - now_s)

    def failed(self, source: str, now_s: float) -> None:
        if len(self._failures) > _SESSIONS_MAX:
            self._failures.clear()
        count, since_s = self._failures.get(source, (0, now_s))
        expired = now_s > since_s + PAUSE_S
        self._failures[source] = (1 if expired else count + 1), now_s

    def succeeded(self, source: str) -> None:
        self._failures.pop(source, None)


class RateLimit:
    """A token bucket per source."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._buckets: dict[str, tuple[float, float]] = {}

    def allows(self, source: str, now_s: float) -> bool:
        if len(self._buckets) > _SESSIONS_MAX:
            self._buckets.clear()
        tokens, at_s = self._buckets.get(source, (self._burst, now_s))
        tokens = min(self._burst, tokens + (now_s - at_s) * self._per_s)
        if tokens < 1:
            self._buckets[source] = tokens, now_s
            return False
        self._buckets[source] = tokens - 1, now_s
        return True


Clock = Callable[[], float]
