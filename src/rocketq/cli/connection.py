"""How a command reaches its cluster: options, environment, a named profile, and mqadmin's tools.yml, in this order.

Profiles are JSON in ~/.config/rocketq/profiles.json (ROCKETQ_PROFILES names another file), mode 0600:

    {"prod": {"nameServers": "mq1:9876;mq2:9876", "accessKey": "ops", "secretKey": "...", "tls": true, "ca": "ca.pem"}}
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rocketq.errors import ConfigError
from rocketq.protocol.acl import Credentials
from rocketq.remoting import ClientTls

NAME_SERVER: Final = "127.0.0.1:9876"
PROFILE_VARIABLE: Final = "ROCKETQ_PROFILE"
PROFILES_VARIABLE: Final = "ROCKETQ_PROFILES"
TOOLS_FILE: Final = Path("conf/tools.yml")
_VARIABLES: Final = {
    "name_servers": "NAMESRV_ADDR",
    "access_key": "ROCKETQ_ACCESS_KEY",
    "secret_key": "ROCKETQ_SECRET_KEY",
    "tls": "ROCKETQ_TLS",
    "ca": "ROCKETQ_CA",
    "cert": "ROCKETQ_CERT",
    "key": "ROCKETQ_KEY",
}
_JSON: Final = {"name_servers": "nameServers", "access_key": "accessKey", "secret_key": "secretKey"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known of how to reach a cluster; None: not said here."""

    name_servers: str | None = None
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    tls: bool | None = None
    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def over(self, weaker: Profile) -> Profile:
        """This one, completed from another. Credentials come from one place: a key without its secret is an error."""
        mine, other = self.members(), weaker.members()
        if mine.keys() & {"access_key", "secret_key"}:
            other = {name: value for name, value in other.items() if name not in ("access_key", "secret_key")}
        return Profile(**(other | mine))

    def members(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}

    def to_json(self) -> dict[str, Any]:
        return {_JSON.get(name, name): value for name, value in self.members().items()}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Profile:
        names = {_JSON.get(name, name): name for name in cls.__slots__}
        if unknown := found.keys() - names.keys():
            raise ConfigError(f"a profile has no {', '.join(sorted(unknown))}")
        return cls(**{names[key]: value for key, value in found.items()})

    @property
    def credentials(self) -> Credentials | None:
        if (self.access_key is None) != (self.secret_key is None):
            missing = "secret key: give --secret-key, or set ROCKETQ_SECRET_KEY"
            raise ConfigError(f"the access key lacks its {missing}" if self.access_key else "the secret key lacks its "
                              "access key: give --access-key, or set ROCKETQ_ACCESS_KEY")  # fmt: skip
        if self.access_key is None or self.secret_key is None:
            return None
        return Credentials(self.access_key, self.secret_key)

    @property
    def client_tls(self) -> ClientTls | None:
        """None: plain connections. A certificate of any kind means TLS, too."""
        if not (self.ca or self.cert or self.tls):
            return None
        if self.tls is False:
            raise ConfigError("--no-tls and certificates contradict each other")
        if self.key and not self.cert:
            raise ConfigError("a key needs its certificate: give --cert, too")
        paths = [Path(text).expanduser() if text else None for text in (self.ca, self.cert, self.key)]
        for path in paths:
            if path is not None and not path.is_file():
                raise ConfigError(f"{path} does not exist")
        return ClientTls(trust_path=paths[0], cert_path=paths[1], key_path=paths[2])


def resolve(options: Profile, profile_name: str | None, environ: Mapping[str, str]) -> Profile:
    """Options win over the environment, that over the profile, that over tools.yml. A profile that is named by an
    option wins over the environment."""
    from_environ = _from_environ(environ)
    named = profile_name or environ.get(PROFILE_VARIABLE)
    profile = Profile() if not named else _find(named)
    found = options.over(profile.over(from_environ) if profile_name else from_environ.over(profile))
    if found.access_key is None and found.secret_key is None and (home := environ.get("ROCKETMQ_HOME")):
        found = found.over(read_tools(Path(home) / TOOLS_FILE))
    return found


def _from_environ(environ: Mapping[str, str]) -> Profile:
    found: dict[str, Any] = {name: environ[key] for name, key in _VARIABLES.items() if environ.get(key)}
    if "tls" in found:
        found["tls"] = found["tls"].strip().lower() in ("1", "true", "yes", "on")
    return Profile(**found)


def read_tools(path: Path) -> Profile:
    """The credentials of mqadmin's tools.yml; a file that does not exist has none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return Profile()
    import yaml  # noqa: PLC0415 - few have such a file

    try:
        found = yaml.load(text, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise ConfigError(f"{path}{f':{mark.line + 1}' if mark else ''}: {getattr(error, 'problem', error)}") from None
    if not isinstance(found, dict):
        return Profile()
    access_key, secret_key = str(found.get("accessKey") or ""), str(found.get("secretKey") or "")
    return Profile(access_key=access_key, secret_key=secret_key) if access_key and secret_key else Profile()


# profiles


def profiles_path() -> Path:
    given = os.environ.get(PROFILES_VARIABLE)
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "rocketq" / "profiles.json"


def load_profiles() -> dict[str, Profile]:
    """By name; none where there is no file."""
    path = profiles_path()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: Profile.from_json(members) for name, members in found.items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (ValueError, AttributeError, TypeError, ConfigError) as error:
        raise ConfigError(f"{path} is not a file of profiles: {error}") from None


def save_profiles(profiles: Mapping[str, Profile]) -> None:
    """The file in one step, readable by its owner alone."""
    path = profiles_path()
    text = json.dumps({name: profiles[name].to_json() for name in sorted(profiles)}, indent=2) + "\n"
    scratch = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        scratch.unlink(missing_ok=True)
        with open(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        scratch.replace(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


def is_readable_by_others() -> bool:
    try:
        return bool(profiles_path().stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO))
    except OSError:
        return False


def _find(name: str) -> Profile:
    profiles = load_profiles()
    if name not in profiles:
        known = ", ".join(sorted(profiles)) or "none"
        raise ConfigError(f"there is no profile {name} in {profiles_path()} (known: {known}): `rocketq profile add`")
    return profiles[name]
