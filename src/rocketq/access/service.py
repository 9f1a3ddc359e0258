"""Access control of one process: its files opened, watched and saved around the decisions.

One service may serve several servers: `rocketq up` has a NameServer and a broker in one process.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rocketq.access.audit import AuditLog
from rocketq.access.config import AccessConfig
from rocketq.access.control import AccessControl, PlainModel, UserModel
from rocketq.access.plain import PlainRules
from rocketq.access.policies import User
from rocketq.access.sealing import Sealer, derived_sealer, load_master_key
from rocketq.access.user_file import UserFile, decode_users, encode_users
from rocketq.access.users import UserState, UserTable, migrated
from rocketq.errors import ConfigError
from rocketq.protocol.acl import Credentials
from rocketq.runtime.clock import Clock

if TYPE_CHECKING:
    from rocketq.access.plain_files import LoadedFiles, PlainFiles

log = logging.getLogger(__name__)

RELOAD_MS: Final = 2_000
"""Between two looks at the files of ACL 1.0."""
HOME_VARIABLE: Final = "ROCKETMQ_HOME"
TEMPORARY_PREFIX: Final = "rocketq-inner-"
"""Inner credentials for one run: they are no user."""
_FIRST_USER: Final = "admin"
_SHARED: Final = "rocketq users between brokers"


class AccessService:
    """`control` decides. Methods that are not coroutines and touch files are for the start."""

    def __init__(
        self,
        config: AccessConfig,
        control: AccessControl,
        *,
        plain_files: PlainFiles | None = None,
        users: UserTable | None = None,
        user_file: UserFile | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self.config = config
        self.control = control
        self.plain_files = plain_files
        self.users = users
        self._user_file = user_file
        self._audit = audit
        self._saving = asyncio.Lock()
        self._saved_version = users.state.version if users is not None else 0
        self._unsaved_use = False
        self.inner: Credentials | None = config.inner_credentials
        self._shared = derived_sealer(self.inner.secret_key, _SHARED) if self.inner is not None else None
        self._notify: Callable[[], None] = lambda: None
        self._wait_shared: Callable[[], Awaitable[None]] | None = None
        if users is not None:
            users.listeners.append(control.refresh)
            control.seen = self._seen

    # files

    def start(self) -> None:
        if self._audit is not None:
            self._audit.start()

    async def stop(self) -> None:
        """What was recorded, and when users were last seen, is on disk."""
        if self._unsaved_use:
            await self.save()
        if self._audit is not None:
            await asyncio.to_thread(self._audit.stop)

    async def reload(self) -> None:
        """Follow the files of ACL 1.0. One that cannot be read is logged, and nothing changes."""
        if self.plain_files is None:
            if self._unsaved_use:
                await self.save()
            return
        try:
            loaded = await asyncio.to_thread(self.plain_files.reload)
        except ConfigError as error:
            log.error("ACL files were not reloaded, the old rules stay: %s", error)
            return
        if loaded is not None:
            self.take_rules(loaded)
            log.info("ACL files reloaded accounts=%d files=%d", len(loaded.rules.accounts), len(loaded.files))

    def take_rules(self, loaded: LoadedFiles) -> None:
        assert isinstance(self.control.model, PlainModel)
        self.control.model.rules = loaded.rules
        self.control.refresh()

    async def save(self) -> None:
        """Users and policies as they are now; returns when they are on disk."""
        if self.users is None or self._user_file is None:
            return
        async with self._saving:
            self._unsaved_use = False
            state, seen = self.users.state, dict(self.users.last_used_ms)
            await asyncio.to_thread(self._user_file.save, state, seen)
            self._saved_version = state.version

    def follow_changes(self, notify: Callable[[], None], wait_shared: Callable[[], Awaitable[None]]) -> None:
        """This broker is a replica of others: `notify` is called about changes made here, and `wait_shared` returns
        when the replicas that count have them. A broker that starts again follows anew."""
        self._notify, self._wait_shared = notify, wait_shared

    async def share(self) -> None:
        """Returns when replicas have what was changed here."""
        self._notify()
        if self._wait_shared is not None:
            await self._wait_shared()

    def _seen(self, user: str, now_ms: int) -> None:
        assert self.users is not None
        if now_ms - self.users.last_used_ms.get(user, 0) >= 1_000:
            self.users.last_used_ms[user] = now_ms
            self._unsaved_use = True

    # between brokers

    def sealed_users(self) -> str | None:
        """For slaves: None where there are no users, or no common secret to seal them with."""
        if self.users is None or self._shared is None:
            return None
        return self._shared.seal(encode_users(self.users.state, _Plain(), self.users.last_used_ms).decode())

    async def take_sealed_users(self, sealed: str) -> None:
        """The master's users and policies replace ours, with those of our settings."""
        if self.users is None or self._shared is None:
            return
        state, seen = decode_users(self._shared.unseal(sealed).encode(), _Plain())
        before = self.users.state
        if (state.users, state.policies) == (before.users, before.policies):
            return
        self.users.last_used_ms.update(seen)
        self.users.replace_all(state)
        await self.save()


class _Plain(Sealer):
    """No encryption of single secrets: the whole text is sealed."""

    def __init__(self) -> None:
        pass

    def seal(self, text: str) -> str:
        return text

    def unseal(self, sealed: str) -> str:
        return sealed


def acl_home(config: AccessConfig) -> Path | None:
    """rocketmqHome, else ROCKETMQ_HOME of the environment."""
    text = config.home or os.environ.get(HOME_VARIABLE, "")
    return Path(text) if text else None


def open_access(config: AccessConfig, root: Path, cluster: str, clock: Clock) -> AccessService | None:
    """None where access control is off. ConfigError or DamagedStateError: it is on and cannot work, so nothing may be
    served."""
    if not config.is_on:
        return None
    audit = AuditLog(
        Path(config.audit_file) if config.audit_file else root / "logs" / "auth_audit.log", config.audit_bytes_max
    )
    folder = Path(config.users_path) if config.users_path else root / "config"
    key_path = Path(config.key_file) if config.key_file else folder / "access.key"

    def sealer() -> Sealer:
        return Sealer(load_master_key(key_path, config.key_command))

    inner = config.inner_credentials
    inner_pair = (inner.access_key, inner.secret_key) if inner is not None else None
    if config.uses_users:
        file = UserFile(folder / "access.json", sealer())
        state, seen = file.load()
        users = UserTable(_first_users(config, state, folder, sealer))
        users.last_used_ms.update(seen)
        if users.state != state or not file.path.exists():
            file.save(users.state, users.last_used_ms)
        control = AccessControl(config, UserModel(config, users, cluster, inner_pair), cluster, clock, audit)
        if config.acl_enabled:
            log.info("aclEnable=true has no effect: authenticationEnabled=true, users and policies decide")
        return AccessService(config, control, users=users, user_file=file, audit=audit)
    files = _plain_files(config, sealer)
    loaded = files.open()
    control = AccessControl(config, PlainModel(loaded.rules, inner_pair), cluster, clock, audit)
    return AccessService(config, control, plain_files=files, audit=audit)


def _plain_files(config: AccessConfig, sealer: Callable[[], Sealer]) -> PlainFiles:
    from rocketq.access.plain_files import PlainFiles  # noqa: PLC0415 - with it YAML, which few brokers need

    return PlainFiles(acl_home(config), Path(config.acl_file) if config.acl_file else None, _LazyUnseal(sealer))


class _LazyUnseal:
    """Loads the master key when the first `enc:` secret is met: other brokers need none."""

    def __init__(self, make: Callable[[], Sealer]) -> None:
        self._make = make
        self._sealer: Sealer | None = None

    def __call__(self, sealed: str) -> str:
        if self._sealer is None:
            self._sealer = self._make()
        return self._sealer.unseal(sealed)


def _first_users(config: AccessConfig, state: UserState, folder: Path, sealer: Callable[[], Sealer]) -> UserState:
    """Those of the settings are made where they are missing; with nobody at all, an administrator."""
    table = UserTable(state)
    if config.first_user is not None:
        table.ensure(User(config.first_user[0], (config.first_user[1],), is_super=True))
    inner = config.inner_credentials
    if inner is not None and not inner.access_key.startswith(TEMPORARY_PREFIX):
        table.ensure(User(inner.access_key, (inner.secret_key,), is_super=True))
        if inner.secret_key not in table.state.users[inner.access_key].secrets:
            log.warning("user %s has another password than innerClientAuthenticationCredentials", inner.access_key)
    if config.migrate:
        has_files = acl_home(config) is not None or config.acl_file
        rules = _plain_files(config, sealer).open().rules if has_files else PlainRules()
        table.replace_all(migrated(rules, table.state))
    if not any(user.is_super for user in table.state.users.values()):
        _make_administrator(table, folder)
    return table.state


def _make_administrator(table: UserTable, folder: Path) -> None:
    """Its password is in a file of its own, to be read and removed; it is never logged."""
    password = secrets.token_urlsafe(18)
    path = folder / "first-user.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
        json.dump({"username": _FIRST_USER, "password": password}, file)
        file.write("\n")
    table.ensure(User(_FIRST_USER, (password,), is_super=True))
    log.warning("super user %s was made, its password is in %s: read it and remove the file", _FIRST_USER, path)


def random_credentials() -> str:
    """The value of innerClientAuthenticationCredentials for servers that one command starts together."""
    access_key = TEMPORARY_PREFIX + secrets.token_hex(4)
    return json.dumps({"accessKey": access_key, "secretKey": secrets.token_urlsafe(24)})
