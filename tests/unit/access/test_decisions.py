"""Decisions of ACL 1.0 and 2.0: a written-out truth table, and random policies against a reference evaluator."""

from __future__ import annotations

import random
from typing import Any

import pytest

from rocketq.access import plain, policies
from rocketq.access.addresses import AddressPattern
from rocketq.access.plain import PlainRules, make_account
from rocketq.access.policies import Policies, PolicyType, User, make_entry
from rocketq.access.rights import (
    GET,
    PUBLISH,
    SUBSCRIBE,
    UPDATE,
    Action,
    Need,
    Resource,
    ResourceKind,
    group_need,
    topic_need,
)
from rocketq.access.users import ChangeRefusedError, UserTable
from rocketq.errors import ConfigError
from rocketq.protocol.bodies import accounts as bodies

HOME = "127.0.0.1"
CLUSTER = Need(Resource(ResourceKind.CLUSTER, "C"), UPDATE)


def account(**given: Any) -> plain.PlainAccount:
    return make_account("account1", "secret-1", **given)


PLAIN_TABLE = [
    # account, need, allowed
    ({}, topic_need("T", PUBLISH), False),
    ({"default_topic": "PUB"}, topic_need("T", PUBLISH), True),
    ({"default_topic": "PUB"}, topic_need("T", SUBSCRIBE), False),
    ({"default_topic": "PUB|SUB"}, topic_need("T", SUBSCRIBE), True),
    ({"default_topic": "SUB|PUB"}, topic_need("T", PUBLISH), True),
    ({"default_topic": "publish"}, topic_need("T", PUBLISH), False),
    ({"default_topic": "PUB|SUB", "topic_perms": ["T=DENY"]}, topic_need("T", PUBLISH), False),
    ({"default_topic": "DENY", "topic_perms": ["T=PUB"]}, topic_need("T", PUBLISH), True),
    ({"default_topic": "DENY", "topic_perms": ["T=PUB"]}, topic_need("T2", PUBLISH), False),
    ({"topic_perms": ["T*=PUB"]}, topic_need("T2", PUBLISH), False),
    ({"default_group": "SUB"}, group_need("g", SUBSCRIBE), True),
    ({"default_group": "SUB", "group_perms": ["g=DENY"]}, group_need("g", SUBSCRIBE), False),
    ({"topic_perms": ["%RETRY%g=SUB"]}, group_need("g", SUBSCRIBE), True),
    ({"group_perms": ["g=SUB"]}, topic_need("%RETRY%g", PUBLISH), True),
    ({"group_perms": ["g=PUB"]}, topic_need("%RETRY%g", PUBLISH), False),
    ({"default_topic": "PUB|SUB", "default_group": "SUB"}, topic_need("%DLQ%g", SUBSCRIBE), True),
    ({}, topic_need("RMQ_SYS_TRACE_TOPIC", PUBLISH), True),
    ({}, topic_need("RMQ_SYS_TRACE_TOPIC", SUBSCRIBE), False),
    ({"topic_perms": ["RMQ_SYS_TRACE_TOPIC=DENY"]}, topic_need("RMQ_SYS_TRACE_TOPIC", PUBLISH), True),
    ({"default_topic": "SUB"}, topic_need("T", GET), True),
    ({"default_topic": "PUB"}, topic_need("T", GET), False),
    ({"default_topic": "PUB|SUB", "default_group": "PUB|SUB"}, CLUSTER, False),
    ({"admin": True}, CLUSTER, True),
    ({"admin": True}, topic_need("T", PUBLISH), True),
    ({"admin": True, "topic_perms": ["T=PUB"]}, CLUSTER, True),
    ({"admin": True, "topic_perms": ["T=PUB"]}, topic_need("T", PUBLISH), True),
    ({"admin": True, "topic_perms": ["T=PUB"]}, topic_need("U", PUBLISH), False),
    ({"admin": True, "group_perms": ["g=SUB"]}, topic_need("T", PUBLISH), False),
]


@pytest.mark.parametrize(("given", "need", "allowed"), PLAIN_TABLE)
def test_accounts_of_acl_1(given: dict[str, Any], need: Need, allowed: bool) -> None:
    who = account(**given)
    verdict = plain.decide(PlainRules(accounts={who.access_key: who}), who, HOME, 17, (need,))
    assert verdict.allowed is allowed
    assert verdict.rule
    assert bool(verdict.reason) is not allowed


def test_reasons_of_acl_1_are_apaches() -> None:
    who = account()
    rules = PlainRules(accounts={who.access_key: who})
    for needs, code, reason in (
        ((topic_need("T", PUBLISH),), 310, "No default permission for topic:T"),
        ((group_need("g", SUBSCRIBE),), 34, "No default permission for group:g"),
        ((CLUSTER,), 25, "Need admin permission for request code=25, but accessKey=account1 is not"),
        (None, 1001, "Need admin permission for request code=1001, but accessKey=account1 is not"),
    ):
        assert plain.decide(rules, who, HOME, code, needs).reason == reason


def test_white_addresses_win_over_everything() -> None:
    limited = account(topic_perms=["T=DENY"])
    own = account(topic_perms=["T=DENY"], white_address="127.0.0.*")
    everybody = PlainRules((AddressPattern.parse("127.0.0.1"),), {"account1": limited})
    for rules, who, source, allowed in (
        (everybody, limited, HOME, True),
        (everybody, limited, "10.0.0.1", False),
        (PlainRules(accounts={"account1": own}), own, HOME, True),
        (PlainRules(accounts={"account1": own}), own, "10.0.0.1", False),
    ):
        assert plain.decide(rules, who, source, 25, (CLUSTER,)).allowed is allowed


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"topic_perms": ["T"]}, "Parse Resource format error for T.\nThe expected resource format is 'Res=Perm'. "
                                 "For example: topicA=SUB"),
        ({"white_address": "10.0.0"}, "Netaddress examine Exception netaddress is 10.0.0"),
    ],
)  # fmt: skip
def test_accounts_that_cannot_be(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as error:
        account(**given)
    assert str(error.value) == reason


@pytest.mark.parametrize(
    ("key", "secret"), [("", "secret-1"), ("abc", "secret-1"), ("account1", "short"), ("123456", "1234567")]
)
def test_short_keys_are_rejected_and_never_repeated(key: str, secret: str) -> None:
    with pytest.raises(ConfigError) as error:
        make_account(key, secret)
    assert "cannot be null and length should longer than 6" in str(error.value)
    assert secret not in str(error.value)


@pytest.mark.parametrize(
    ("key", "secret"), [("account\ud800", "secret-1"), ("account1", "secret-\udfff")], ids=["key", "secret"]
)
def test_keys_that_no_signature_can_have_are_rejected(key: str, secret: str) -> None:
    """Goal: a YAML escape of a lone surrogate is an error of the file, not of every later reload."""
    with pytest.raises(ConfigError, match="not valid Unicode") as error:
        make_account(key, secret)
    assert secret not in str(error.value)
    table = UserTable()
    with pytest.raises(ChangeRefusedError, match="not valid Unicode"):
        table.create(key, bodies.User(password=secret), by_super=True)
    assert table.state.version == 0


@pytest.mark.parametrize(
    ("pattern", "inside", "outside"),
    [
        ("192.168.0.1", "192.168.0.1", "192.168.0.2"),
        ("192.168.0.*", "192.168.0.200", "192.168.1.1"),
        ("192.168.*.*", "192.168.7.9", "192.169.0.1"),
        ("127.0.10-12.*", "127.0.12.9", "127.0.13.9"),
        ("192.168.1.5-9", "192.168.1.5", "192.168.1.10"),
        ("127.0.13.{5,7}", "127.0.13.7", "127.0.13.6"),
        ("10.0.0.1,10.0.0.2", "10.0.0.2", "10.0.0.3"),
        ("*", "10.1.2.3", None),
        ("*.*.*.*", "::1", None),
        ("*:*:*:*:*:*:*:*", "10.1.2.3", None),
        ("::1", "0:0:0:0:0:0:0:1", "::2"),
        ("1:2:3:4:5:6:7:*", "1:2:3:4:5:6:7:ffff", "1:2:3:4:5:6:8:1"),
        ("fe80::5:1-200", "fe80::5:1ff", "fe80::5:201"),
        ("fe80::{1,a}", "fe80::a", "fe80::2"),
        ("127.0.0.1", "::ffff:127.0.0.1", "::1"),
        ("", None, "127.0.0.1"),
    ],
)
def test_address_patterns(pattern: str, inside: str | None, outside: str | None) -> None:
    parsed = AddressPattern.parse(pattern)
    assert inside is None or parsed.matches(inside)
    assert outside is None or not parsed.matches(outside)


@pytest.mark.parametrize(
    "text",
    ["10.0.0", "10.0.0.0/8", "10.0.0.300", "*.0.0.1", "x", "10.0.0.9-5", "10.0.0.{1,x}", "1:2::3::4", "10.0.0.1,*"],
)
def test_what_is_no_address_pattern(text: str) -> None:
    with pytest.raises(ConfigError, match="Netaddress examine Exception"):
        AddressPattern.parse(text)


def custom(*entries: tuple[str, str, str]) -> Policies:
    made = [make_entry(resource, actions.split(","), None, decision) for resource, actions, decision in entries]
    return Policies().with_entries(PolicyType.CUSTOM, made)


POLICY_TABLE = [
    # entries (resource, actions, decision), need, allowed
    ([], topic_need("T", PUBLISH), False),
    ([("Topic:T", "Pub", "Allow")], topic_need("T", PUBLISH), True),
    ([("topic:T", "pub", "allow")], topic_need("T", PUBLISH), True),
    ([("Topic:T", "All", "Allow")], topic_need("T", PUBLISH), True),
    ([("Topic:T", "Sub", "Allow")], topic_need("T", PUBLISH), False),
    ([("Topic:T", "Pub", "Allow")], topic_need("t", PUBLISH), False),
    ([("Group:T", "Pub", "Allow")], topic_need("T", PUBLISH), False),
    ([("Topic:pr*", "Pub", "Allow")], topic_need("pre-1", PUBLISH), True),
    ([("Topic:pr*-1", "Pub", "Allow")], topic_need("pre-1", PUBLISH), False),
    ([("Topic:*", "Pub", "Allow")], topic_need("T", PUBLISH), True),
    ([("*", "Pub", "Allow")], topic_need("T", PUBLISH), True),
    ([("Topic:T", "Pub", "Deny"), ("Topic:*", "Pub", "Allow")], topic_need("T", PUBLISH), False),
    ([("Topic:*", "Pub", "Allow"), ("Topic:T", "Pub", "Deny")], topic_need("T", PUBLISH), False),
    ([("Topic:pre*", "Pub", "Deny"), ("Topic:p*", "Pub", "Allow")], topic_need("prefix", PUBLISH), False),
    ([("Topic:pre*", "Pub", "Allow"), ("Topic:p*", "Pub", "Deny")], topic_need("prefix", PUBLISH), True),
    ([("Topic:prefix", "Pub", "Allow"), ("Topic:prefi*", "Pub", "Deny")], topic_need("prefix", PUBLISH), True),
    ([("Topic:*", "Pub", "Deny"), ("*", "All", "Allow")], topic_need("T", PUBLISH), False),
    ([("Topic:T", "Sub", "Deny"), ("*", "All", "Allow")], topic_need("T", PUBLISH), True),
    ([("Cluster:C", "Update", "Allow")], CLUSTER, True),
    ([("Cluster:*", "Get", "Allow")], CLUSTER, False),
    ([("Group:g", "Sub", "Allow")], topic_need("%RETRY%g", PUBLISH), True),
    ([("Topic:%RETRY%g", "Pub", "Allow")], topic_need("%RETRY%g", PUBLISH), False),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "need", "allowed"), POLICY_TABLE)
def test_policies_of_acl_2(entries: list[tuple[str, str, str]], need: Need, allowed: bool) -> None:
    assert custom(*entries).decide(need, HOME).allowed is allowed
    assert custom(*reversed(entries)).decide(need, HOME).allowed is allowed, "the order of entries means nothing"


def test_default_entries_count_where_no_custom_entry_matches() -> None:
    need, rules = topic_need("T", PUBLISH), custom(("Topic:*", "Pub", "Deny"))
    default = [make_entry("Topic:T", ["Pub"], None, "Allow")]
    assert Policies().with_entries(PolicyType.DEFAULT, default).decide(need, HOME).allowed
    verdict = rules.with_entries(PolicyType.DEFAULT, default).decide(need, HOME)
    assert (verdict.allowed, verdict.rule) == (False, "Custom: Deny Pub on Topic:*")
    assert verdict.beaten == ("Default: Allow Pub on Topic:T",)


def test_entries_for_other_sources_do_not_match() -> None:
    entry = make_entry("Topic:T", ["Pub"], ["10.0.0.0/8", "192.168.0.1"], "Allow")
    rules = Policies().with_entries(PolicyType.CUSTOM, [entry])
    for source, allowed in (("10.9.9.9", True), ("192.168.0.1", True), ("192.168.0.2", False), ("::1", False)):
        assert rules.decide(topic_need("T", PUBLISH), source).allowed is allowed


def test_the_denied_texts_are_apaches() -> None:
    app = User("app", ("p",))
    need = topic_need("t", PUBLISH)
    for rules, reason in (
        (Policies(), "no matched policies"),
        (custom(("Topic:t", "All", "Deny")), "the decision is deny"),
    ):
        verdict, denied = policies.decide(app, rules, HOME, (need,))
        text = policies.denied_text("app", denied, "C", HOME, verdict.reason)
        assert text == f"User:app has no permission to access Topic:t from 127.0.0.1, {reason}."


def reference(entries: list[tuple[PolicyType, policies.PolicyEntry]], need: Need, source: str) -> bool:
    """The documented order, written as it is said."""
    matching = [(kind, entry) for kind, entry in entries if entry.matches(need, source)]
    of_kind = [entry for kind, entry in matching if kind is PolicyType.CUSTOM]
    candidates = of_kind or [entry for _, entry in matching]
    for wanted in ("literal", "prefix", "kind", "any"):
        best = [entry for entry in candidates if form(entry) == wanted]
        if wanted == "prefix" and best:
            longest = max(len(entry.resource.name) for entry in best)
            best = [entry for entry in best if len(entry.resource.name) == longest]
        if best:
            return all(entry.allow for entry in best)
    return False


def form(entry: policies.PolicyEntry) -> str:
    text = str(entry.resource)
    if text == "*":
        return "any"
    name = text.partition(":")[2]
    return "kind" if name == "*" else "prefix" if name.endswith("*") else "literal"


def test_random_policies_are_decided_as_the_reference_does() -> None:
    chance = random.Random(20)
    names = ["a", "ab", "abc", "abd", "b", "bc"]
    patterns = [
        f"{kind}:{name}" for kind in ("Topic", "Group") for name in (*names, "a*", "ab*", "abc*", "b*", "*")
    ] + ["*"]
    for _ in range(3_000):
        rules, kept = Policies(), dict[Any, policies.PolicyEntry]()
        for _ in range(chance.randrange(8)):
            kind = chance.choice(list(PolicyType))
            actions = chance.sample(["Pub", "Sub", "Get", "All"], chance.randrange(1, 3))
            sources = chance.choice([None, ["127.0.0.1"], ["10.0.0.0/8"]])
            entry = make_entry(chance.choice(patterns), actions, sources, chance.choice(["Allow", "Deny"]))
            rules = rules.with_entries(kind, [entry])
            kept[kind, str(entry.resource)] = entry
        entries = [(kind, entry) for (kind, _), entry in kept.items()]
        need = Need(
            Resource(chance.choice([ResourceKind.TOPIC, ResourceKind.GROUP]), chance.choice(names)),
            frozenset(chance.sample([Action.PUBLISH, Action.SUBSCRIBE, Action.GET], chance.randrange(1, 3))),
        )
        assert rules.decide(need, HOME).allowed is reference(entries, need, HOME), (entries, need)
