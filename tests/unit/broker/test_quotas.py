"""Quotas: their rules, the buckets of a name, and token buckets against a model."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketq.broker.config import BrokerConfig
from rocketq.broker.pipeline.quotas import QuotaRule, Quotas, charge, parse_quotas, quota_fault
from rocketq.errors import ConfigError
from rocketq.kernel.admission import Generation, TokenBucket

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", []),
        (" ; ;; ", []),
        ("topic/T: 5 msg/s", [QuotaRule("topic", "T", 5.0)]),
        ("group/*:0.5msg/s", [QuotaRule("group", "*", 0.5)]),
        ("principal/a-b_c%|.x : 7 B/s , 3 msg/s", [QuotaRule("principal", "a-b_c%|.x", 3.0, 7.0)]),
        (
            "topic/T: 2 KiB/s; group/T: 0.5 MiB/s;",
            [QuotaRule("topic", "T", None, 2048.0), QuotaRule("group", "T", None, 524288.0)],
        ),
        ("topic/a/b: 1 msg/s", [QuotaRule("topic", "a/b", 1.0)]),
        ("\n topic/T:\n 1 msg/s\n", [QuotaRule("topic", "T", 1.0)]),
    ],
)
def test_rules_are_read(text: str, rules: list[QuotaRule]) -> None:
    assert parse_quotas(text) == tuple(rules)


FORM = (
    "write topic, group or principal, a slash and a name or *, a colon and limits, "
    "such as topic/Orders: 5000 msg/s, 10 MiB/s"
)
LIMIT = "write a number above 0 and msg/s, B/s, KiB/s or MiB/s"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("x", f'quotas: "x" is invalid: {FORM}'),
        ("topic/T", f'quotas: "topic/T" is invalid: {FORM}'),
        ("topic/T:", f'quotas: "topic/T:" is invalid: {FORM}'),
        ("topic/: 5 msg/s", f'quotas: "topic/: 5 msg/s" is invalid: {FORM}'),
        ("queue/T: 5 msg/s", f'quotas: "queue/T: 5 msg/s" is invalid: {FORM}'),
        ("Topic/T: 5 msg/s", f'quotas: "Topic/T: 5 msg/s" is invalid: {FORM}'),
        ("topic/a b: 5 msg/s", f'quotas: "topic/a b: 5 msg/s" is invalid: {FORM}'),
        ("topic/T: 5", f'quotas: limit "5" of topic/T is invalid: {LIMIT}'),
        ("topic/T: 0 msg/s", f'quotas: limit "0 msg/s" of topic/T is invalid: {LIMIT}'),
        ("topic/T: -1 msg/s", f'quotas: limit "-1 msg/s" of topic/T is invalid: {LIMIT}'),
        ("topic/T: 1e3 msg/s", f'quotas: limit "1e3 msg/s" of topic/T is invalid: {LIMIT}'),
        ("topic/T: 5 MB/s", f'quotas: limit "5 MB/s" of topic/T is invalid: {LIMIT}'),
        ("topic/T: 5 msg/s,", f'quotas: limit "" of topic/T is invalid: {LIMIT}'),
        ("topic/T: 5 msg/s, 6 msg/s", "quotas: topic/T limits messages twice"),
        ("topic/T: 5 B/s, 6 KiB/s", "quotas: topic/T limits bytes twice"),
        ("topic/T: 5 B/s; topic/T: 6 msg/s", "quotas: topic/T has two rules, join them with a comma"),
        ("group/*: 5 B/s; group/* : 5 B/s", "quotas: group/* has two rules, join them with a comma"),
    ],
)
def test_bad_rules_are_explained(text: str, fault: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_quotas(text)
    assert str(raised.value) == fault
    with pytest.raises(ConfigError):
        BrokerConfig(name="b", quotas=text)


@given(st.text(st.sampled_from("topicgru/*:;, 0123.msgKMiB/s\n"), max_size=60))
def test_any_text_is_rules_or_an_error(text: str) -> None:
    try:
        rules = parse_quotas(text)
    except ConfigError:
        return
    assert all((rule.messages_per_s or rule.bytes_per_s or 0) > 0 for rule in rules)


# buckets


def names_of(quotas: Quotas, *request: str | None) -> list[tuple[str, str, float]]:
    return [(each.name, each.unit, each.rate) for each in quotas.buckets(*request)]  # type: ignore[arg-type]


def test_a_rule_for_a_name_replaces_the_one_for_all() -> None:
    quotas = Quotas(parse_quotas("topic/*: 1 msg/s; topic/T: 2 B/s; group/G: 3 msg/s, 4 B/s; principal/*: 5 msg/s"))
    assert names_of(quotas, "T", "G", "P") == [
        ("topic T", "bytes", 2),
        ("group G", "messages", 3),
        ("group G", "bytes", 4),
        ("principal P", "messages", 5),
    ]
    assert names_of(quotas, "U", "H", None) == [("topic U", "messages", 1)]
    assert names_of(quotas, "U", "", "") == [("topic U", "messages", 1)]
    assert names_of(Quotas(), "T", "G", "P") == []


def test_all_requests_of_a_name_share_its_buckets() -> None:
    quotas = Quotas(parse_quotas("topic/*: 1 msg/s; group/*: 1 msg/s"))
    (topic, group), (same_topic, other_group) = quotas.buckets("T", "G", None), quotas.buckets("T", "H", None)
    assert topic is same_topic
    assert group is not other_group


def test_other_rules_begin_with_full_buckets_and_the_same_rules_do_not() -> None:
    before = BrokerConfig(name="b", quotas="topic/T: 2 msg/s")
    quotas = Quotas(parse_quotas(before.quotas))
    buckets = quotas.buckets("T", "", None)
    quotas.follow(before, replace(before, perm=4))
    assert quotas.buckets("T", "", None) == buckets
    quotas.follow(before, replace(before, quotas="topic/T: 3 msg/s"))
    assert names_of(quotas, "T", "", None) == [("topic T", "messages", 3)]
    quotas.follow(before, replace(before, quotas=""))
    assert names_of(quotas, "T", "", None) == []


def test_requests_of_names_without_a_rule_are_not_remembered() -> None:
    """Goal: clients choose the names of groups; those that no rule is for must not push out buckets with a debt."""
    quotas = Quotas(parse_quotas("topic/T: 1 msg/s"))
    for number in range(1_000):
        quotas.buckets("T", f"g{number}", None)
    assert (len(quotas._buckets), len(quotas._others)) == (1, 0)


def test_very_many_names_push_out_the_longest_unseen_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Goal: whoever makes up names of groups fills no bucket that has a rule of its own, or is in use."""
    monkeypatch.setattr("rocketq.broker.pipeline.quotas._NAMES_MAX", 100)
    quotas = Quotas(parse_quotas("topic/T: 1 msg/s; topic/*: 1 msg/s; group/*: 1 msg/s"))
    named, used = quotas.buckets("T", "", None), quotas.buckets("U", "", None)
    unseen = quotas.buckets("", "first", None)
    for number in range(1_000):
        quotas.buckets("T", f"g{number}", None)
        assert quotas.buckets("U", "", None) == used
    assert quotas.buckets("T", "", None) == named
    assert quotas.buckets("", "first", None) != unseen
    assert len(quotas._others) == 100


def test_names_count_by_their_first_255_characters() -> None:
    quotas = Quotas(parse_quotas("group/*: 1 msg/s"))
    (one,), (other,) = quotas.buckets("", "g" * 255 + "1", None), quotas.buckets("", "g" * 1_000_000, None)
    assert one is other
    assert one.name == "group " + "g" * 255


def test_what_is_charged_is_counted_in_the_unit_of_each_bucket() -> None:
    quotas = Quotas(parse_quotas("topic/T: 10 msg/s, 1 KiB/s"))
    buckets = quotas.buckets("T", "", None)
    assert quota_fault(buckets, NOW_MS) is None
    charge(buckets, 3, 500)
    assert [bucket.rate_now(NOW_MS) for bucket in buckets] == [3, 500]
    charge(buckets, 1, 524)
    assert quota_fault(buckets, NOW_MS) == (
        "[QUOTA]over quota of topic T: 1024 bytes/s allowed, 1024 bytes/s in the last second; retry later"
    )
    assert quota_fault(buckets, NOW_MS + 1) is None


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        ("0.5 msg/s", "0.5 messages"),
        ("0.5 KiB/s", "512 bytes"),
        ("10 MiB/s", "10485760 bytes"),
        ("9 msg/s", "9 messages"),
    ],
)
def test_a_limit_is_told_as_it_was_set(limit: str, shown: str) -> None:
    buckets = Quotas(parse_quotas(f"topic/T: {limit}")).buckets("T", "", None)
    assert quota_fault(buckets, NOW_MS) is None
    charge(buckets, 100, 100 << 20)
    assert f"over quota of topic T: {shown}/s allowed, " in (quota_fault(buckets, NOW_MS) or "")


# the token bucket


def test_a_bucket_begins_full_and_leaves_a_debt_that_is_waited_for() -> None:
    bucket = TokenBucket("topic T", "messages", 10)
    assert bucket.has_tokens(NOW_MS)
    bucket.take(35)  # one batch, larger than the bucket
    assert not bucket.has_tokens(NOW_MS + 2_500)
    assert bucket.has_tokens(NOW_MS + 2_501)


def test_no_more_than_one_second_is_saved_up() -> None:
    bucket = TokenBucket("topic T", "messages", 10)
    assert bucket.has_tokens(NOW_MS)
    assert bucket.has_tokens(NOW_MS + 3_600_000)
    bucket.take(10)
    assert not bucket.has_tokens(NOW_MS + 3_600_000)


def test_a_clock_that_is_set_back_neither_fills_nor_blocks() -> None:
    bucket = TokenBucket("topic T", "messages", 10)
    assert bucket.has_tokens(NOW_MS)
    bucket.take(10)
    assert not bucket.has_tokens(NOW_MS - 3_600_000)
    assert bucket.has_tokens(NOW_MS - 3_600_000 + 1)


def test_the_rate_is_of_the_last_second() -> None:
    bucket = TokenBucket("topic T", "messages", 100)
    bucket.has_tokens(NOW_MS)
    bucket.take(40)
    assert bucket.rate_now(NOW_MS + 999) == 40
    assert bucket.rate_now(NOW_MS + 1_000) == 40
    assert bucket.rate_now(NOW_MS + 1_500) == 20
    bucket.take(10)
    assert bucket.rate_now(NOW_MS + 1_500) == 30
    assert bucket.rate_now(NOW_MS + 2_250) == 7.5
    assert bucket.rate_now(NOW_MS + 9_000) == 0


@given(
    rate=st.floats(0.5, 1_000),
    steps=st.lists(st.tuples(st.integers(-50, 3_000), st.integers(0, 500)), min_size=1, max_size=30),
)
def test_a_bucket_admits_what_its_model_does(rate: float, steps: list[tuple[int, int]]) -> None:
    """Goal: tokens grow with time up to one second's worth, and whatever was taken is missing."""
    bucket, tokens, now_ms, at_ms = TokenBucket("topic T", "messages", rate), rate, NOW_MS, NOW_MS
    bucket.refill(NOW_MS)
    for passed_ms, count in steps:
        now_ms += passed_ms
        if now_ms > at_ms:
            tokens = min(rate, tokens + rate * (now_ms - at_ms) / 1000.0)
        at_ms = now_ms
        assert bucket.has_tokens(now_ms) == (tokens > 0)
        assert bucket.rate_now(now_ms) >= 0
        if tokens > 0:
            bucket.take(count)
            tokens -= count


def test_a_generation_counts_and_ignores_what_it_is_told() -> None:
    generation = Generation()
    numbers = [generation.number]
    for arguments in ((), (1,), ("before", "after")):
        generation.bump(*arguments)
        numbers.append(generation.number)
    assert len(set(numbers)) == len(numbers)
    assert 0 not in numbers, "0 stands for nothing"
