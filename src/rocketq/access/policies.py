"""ACL 2.0: users and their policies, and the order in which policy entries decide.

Of the entries that match the resource, one of the needed actions and the source address:
1. Custom entries come before Default ones: these count only where no Custom entry matches
2. the most specific resource: a name, then the longest prefix, then `Topic:*`, then `*`
3. Deny before Allow
No entry: denied. The order in which entries were added means nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from rocketq.access.addresses import SourceNetworks
from rocketq.access.plain import Verdict
from rocketq.access.rights import Action, Need, Resource, ResourceKind
from rocketq.errors import ConfigError
from rocketq.protocol.acl import is_unicode

SUBJECT_PREFIX: Final = "User:"
ALL_ACTIONS: Final = frozenset(Action)
_ACTIONS: Final[Mapping[str, frozenset[Action]]] = {
    **{action.value.lower(): frozenset({action}) for action in Action},
    "all": ALL_ACTIONS,
}
_KINDS: Final = {kind.value.lower(): kind for kind in ResourceKind}
_LITERAL, _PREFIX, _KIND, _ANY = 3, 2, 1, 0


class PolicyType(enum.StrEnum):
    CUSTOM = "Custom"
    DEFAULT = "Default"


class PolicyError(ConfigError):
    """A policy that cannot be stored, in the words of Apache's brokers."""


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """What an entry is about: `*`, `Topic:*`, `Topic:pre*` or `Topic:NAME`. A star elsewhere is an ordinary letter."""

    kind: str | None
    """Lower-case; None: every kind. A kind that no request has matches nothing."""
    name: str
    """Without the star."""
    rank: int

    @classmethod
    def parse(cls, text: str) -> ResourcePattern:
        text = text.strip()
        if not text:
            raise PolicyError("The resource is null.")
        if not is_unicode(text):
            raise PolicyError(f"The resource {text!a} is not valid Unicode.")
        if text == "*":
            return cls(None, "", _ANY)
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name or kind.lower() not in (*_KINDS, "namespace"):
            raise PolicyError("The resource is null.")
        if name == "*":
            return cls(kind.lower(), "", _KIND)
        if name.endswith("*"):
            return cls(kind.lower(), name[:-1], _PREFIX)
        return cls(kind.lower(), name, _LITERAL)

    def __str__(self) -> str:
        if self.kind is None:
            return "*"
        shown = _KINDS[self.kind].value if self.kind in _KINDS else self.kind.capitalize()
        return f"{shown}:{self.name}{'' if self.rank == _LITERAL else '*'}"

    def matches(self, resource: Resource) -> bool:
        if self.kind is None:
            return True
        if self.kind != resource.kind.value.lower():
            return False
        return resource.name == self.name if self.rank == _LITERAL else resource.name.startswith(self.name)

    @property
    def specificity(self) -> tuple[int, int]:
        return self.rank, len(self.name) if self.rank == _PREFIX else 0


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    resource: ResourcePattern
    actions: frozenset[Action]
    sources: SourceNetworks
    allow: bool
    action_texts: tuple[str, ...]
    """The words as they are shown again: All stays All."""

    def matches(self, need: Need, source: str) -> bool:
        return (
            self.resource.matches(need.resource)
            and not self.actions.isdisjoint(need.actions)
            and self.sources.matches(source)
        )

    @property
    def decision(self) -> str:
        return "Allow" if self.allow else "Deny"

    def __str__(self) -> str:
        where = f" from {','.join(self.sources.texts)}" if self.sources.texts else ""
        return f"{self.decision} {','.join(self.action_texts)} on {self.resource}{where}"


def make_entry(
    resource: str | None, actions: Iterable[str], sources: Iterable[str] | None, decision: str | None
) -> PolicyEntry:
    """PolicyError says what is wrong as Apache's brokers do."""
    pattern = ResourcePattern.parse(resource or "")
    words = [word.strip() for word in actions if word and word.strip()]
    if any(word.lower() == "any" for word in words):
        raise PolicyError("The actions can not be Any.")
    known = [word for word in words if word.lower() in _ACTIONS]
    if not known:
        raise PolicyError("The actions is empty.")
    try:
        networks = SourceNetworks.parse(tuple(sources or ()))
    except ValueError:
        raise PolicyError("The source ip is invalid.") from None
    if (decision or "").strip().lower() not in ("allow", "deny"):
        raise PolicyError("The decision is null or illegal.")
    found = frozenset().union(*(_ACTIONS[word.lower()] for word in known))
    texts = tuple(dict.fromkeys(_action_text(word) for word in known))
    return PolicyEntry(pattern, found, networks, (decision or "").strip().lower() == "allow", texts)


def _action_text(word: str) -> str:
    return "All" if word.lower() == "all" else next(iter(_ACTIONS[word.lower()])).value


@dataclass(frozen=True)
class Policies:
    """The entries of one user: by policy type and resource, each resource once."""

    entries: Mapping[tuple[PolicyType, ResourcePattern], PolicyEntry] = field(default_factory=dict)

    def with_entries(self, policy_type: PolicyType, entries: Iterable[PolicyEntry]) -> Policies:
        """An entry for a resource replaces the one there was."""
        return Policies({**self.entries, **{(policy_type, entry.resource): entry for entry in entries}})

    def without(self, policy_type: PolicyType, resource: ResourcePattern) -> Policies:
        return Policies({key: entry for key, entry in self.entries.items() if key != (policy_type, resource)})

    @property
    def depends_on_source(self) -> bool:
        return any(entry.sources.networks for entry in self.entries.values())

    @cached_property
    def _index(self) -> _Index:
        return _Index(self.entries)

    def decide(self, need: Need, source: str) -> Verdict:
        """The deciding entry in `rule`, those it beat in their order behind it."""
        ranked = sorted(self._index.matching(need, source), key=_precedence)
        if not ranked:
            return Verdict(False, "no policy", "no matched policies")
        rule, *beaten = (f"{policy_type.value}: {entry}" for policy_type, entry in ranked)
        allowed = ranked[0][1].allow
        return Verdict(allowed, rule, "" if allowed else "the decision is deny", tuple(beaten))


def _precedence(found: tuple[PolicyType, PolicyEntry]) -> tuple[bool, int, int, bool]:
    policy_type, entry = found
    rank, length = entry.resource.specificity
    return policy_type is not PolicyType.CUSTOM, -rank, -length, entry.allow


class _Index:
    """Entries by name and by prefix, so that a decision costs the same with one and with 10,000 of them."""

    def __init__(self, entries: Mapping[tuple[PolicyType, ResourcePattern], PolicyEntry]) -> None:
        self._by_name: dict[tuple[str | None, int, str], list[tuple[PolicyType, PolicyEntry]]] = {}
        lengths: dict[str, set[int]] = {}
        for (policy_type, pattern), entry in entries.items():
            self._by_name.setdefault((pattern.kind, pattern.rank, pattern.name), []).append((policy_type, entry))
            if pattern.rank == _PREFIX and pattern.kind is not None:
                lengths.setdefault(pattern.kind, set()).add(len(pattern.name))
        self._lengths = {kind: tuple(sorted(found)) for kind, found in lengths.items()}

    def matching(self, need: Need, source: str) -> Iterator[tuple[PolicyType, PolicyEntry]]:
        kind, name = need.resource.kind.value.lower(), need.resource.name
        keys: list[tuple[str | None, int, str]] = [(None, _ANY, ""), (kind, _KIND, ""), (kind, _LITERAL, name)]
        keys += [(kind, _PREFIX, name[:length]) for length in self._lengths.get(kind, ()) if length <= len(name)]
        for key in keys:
            for policy_type, entry in self._by_name.get(key, ()):
                if entry.matches(need, source):
                    yield policy_type, entry


@dataclass(frozen=True, slots=True)
class User:
    """`secrets`: one, or two while a secret is being replaced; the first is the newer."""

    name: str
    secrets: tuple[str, ...] = field(repr=False)
    is_super: bool = False
    enabled: bool = True

    @property
    def kind(self) -> str:
        return "Super" if self.is_super else "Normal"

    @property
    def status(self) -> str:
        return "enable" if self.enabled else "disable"


def decide(user: User, policies: Policies, source: str, needs: tuple[Need, ...] | None) -> tuple[Verdict, Need | None]:
    """Whether a user may do what a request needs; with the first need that is denied."""
    if user.is_super:
        return Verdict(True, "super user"), None
    if needs is None:
        return Verdict(False, "super user", "only super users may do this"), None
    rules = []
    for need in needs:
        verdict = policies.decide(need, source)
        if not verdict.allowed:
            return verdict, need
        rules.append(verdict.rule)
    return Verdict(True, "; ".join(dict.fromkeys(rules)) or "any user"), None


def denied_text(user: str, need: Need | None, cluster: str, source: str, reason: str) -> str:
    """As Apache's brokers of 5.x say it."""
    resource = need.resource if need is not None else Resource(ResourceKind.CLUSTER, cluster)
    return f"User:{user} has no permission to access {resource} from {source}, {reason}."
