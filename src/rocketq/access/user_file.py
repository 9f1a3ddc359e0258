"""Users and policies as JSON: the file config/access.json, and what masters send their slaves.

    {"acls": [{"subject": "User:app", "policies": [...]}], "users": [{"username", "userType", "userStatus",
     "secrets": ["enc:..."], "lastUsedTime"}], "version": 7}

Secrets are sealed: in the file with the broker's master key, between brokers with a key of their inner credentials.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rocketq.access.policies import SUBJECT_PREFIX, Policies, PolicyType, User, make_entry
from rocketq.access.sealing import Sealer
from rocketq.access.users import UserState, policies_body
from rocketq.errors import ConfigError, DamagedStateError, RemoteProtocolError
from rocketq.protocol.bodies.accounts import SubjectPolicies


def encode_users(state: UserState, sealer: Sealer, last_used_ms: Mapping[str, int]) -> bytes:
    users = [
        {
            "lastUsedTime": last_used_ms.get(user.name),
            "secrets": [sealer.seal(secret) for secret in user.secrets],
            "userStatus": user.status,
            "userType": user.kind,
            "username": user.name,
        }
        for user in state.users.values()
    ]
    shown = (policies_body(name, policies) for name, policies in state.policies.items())
    acls = [found.to_json() for found in shown if found is not None]
    return json.dumps({"acls": acls, "users": users, "version": state.version}, indent=1, ensure_ascii=False).encode()


def decode_users(data: bytes, sealer: Sealer) -> tuple[UserState, dict[str, int]]:
    """The state and when users were last seen; ConfigError when it was sealed with another key or is damaged."""
    try:
        found: dict[str, Any] = json.loads(data)
        users, last_used_ms = {}, {}
        for entry in found["users"]:
            secrets = tuple(sealer.unseal(text) for text in entry["secrets"])
            name = entry["username"]
            users[name] = User(name, secrets, entry["userType"] == "Super", entry["userStatus"] == "enable")
            if entry.get("lastUsedTime"):
                last_used_ms[name] = int(entry["lastUsedTime"])
        policies = dict(_policies(SubjectPolicies.from_json(acl)) for acl in found["acls"])
        return UserState(users, policies, int(found["version"])), last_used_ms
    except (ValueError, KeyError, TypeError, AttributeError, RemoteProtocolError) as error:
        raise ConfigError(f"users and policies cannot be read: {type(error).__name__}: {error}") from None


def _policies(body: SubjectPolicies) -> tuple[str, Policies]:
    policies = Policies()
    for policy in body.policies:
        entries = [make_entry(each.resource, each.actions, each.source_ips, each.decision) for each in policy.entries]
        policies = policies.with_entries(PolicyType(policy.kind or PolicyType.CUSTOM), entries)
    return (body.subject or "").removeprefix(SUBJECT_PREFIX), policies


class UserFile:
    """The file with its backup. What could not be read is never overwritten."""

    def __init__(self, path: Path, sealer: Sealer) -> None:
        self.path = path
        self._sealer = sealer

    @property
    def backup(self) -> Path:
        return self.path.with_name(self.path.name + ".bak")

    def load(self) -> tuple[UserState, dict[str, int]]:
        """Empty where there is no file; DamagedStateError when neither it nor its backup can be read."""
        troubles = []
        for path in (self.path, self.backup):
            try:
                return decode_users(path.read_bytes(), self._sealer)
            except FileNotFoundError:
                continue
            except (ConfigError, OSError) as error:
                troubles.append(f"{path}: {error}")
        if troubles:
            raise DamagedStateError("; ".join(troubles) + ". Nothing was changed; restore the file or its key")
        return UserState(), {}

    def save(self, state: UserState, last_used_ms: Mapping[str, int]) -> None:
        """The file in one step, readable by its owner alone."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        scratch = self.path.with_name(self.path.name + ".tmp")
        scratch.unlink(missing_ok=True)
        with open(os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
            file.write(encode_users(state, self._sealer, last_used_ms))
            file.flush()
            os.fsync(file.fileno())
        if self.path.exists():
            self.path.replace(self.backup)
        scratch.replace(self.path)
