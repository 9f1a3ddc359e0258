"""SQL92 conditions judged by Apache: its parser and evaluation alone, and its brokers beside ours."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from rocketq.broker.pull.consumer_filters import ConsumerFilters
from rocketq.filter import BadExpressionError, BloomGeometry, compile_sql
from rocketq.protocol.bodies.clients import CheckClient, ConsumerData, Heartbeat, Subscription
from rocketq.protocol.bodies.groups import ConsumerFilterTable
from rocketq.protocol.codes import RequestCode
from rocketq.testing import EmbeddedCluster
from tests.contract.broker.kit import Peer, connected, eventually, make_topic, props, pull, records, send
from tests.unit.filter.conditions import Case, Conditions

from .apache import ApacheBroker, ApacheNameServer, free_broker_port
from .filters.judge import apache_verdicts
from .release import ApacheUnavailable, obtain

pytestmark = pytest.mark.interop

FILTERING = {"enablePropertyFilter": "true"}
TOPIC, GROUP = "Filtered", "filter-group"
VALUES = ("1", "7", "6.5", "abc", "2147483648", "-0.0", "NaN", "true", "it's", "", "\u0665", " 5 ")
GOOD = (
    *("a > 5", "a > 5.0", "a <= 7", "a = 7", "a = '7'", "a <> '7'", "a <> 7", "NOT (a = '7')", "NOT ('7' = a)"),
    *("a IS NULL", "a IS NOT NULL", "a BETWEEN 1 AND 7", "a NOT BETWEEN 2.0 AND 7.0", "a IN ('7', 'abc')"),
    *("a NOT IN ('7', 'abc')", "a = TRUE", "a = FALSE", "TRUE = a", "a", "NOT a", "TAGS = 'TagA' AND a > 5.0"),
    *("a > 5 OR TAGS = 'TagA'", "TAGS = 'TagA' OR a > 5", "a < b", "a LIKE 'x'", "a = --5", "a = 'it''s'", "-a < 5"),
)
NEWER = ("a CONTAINS '7'", "a STARTSWITH 'ab'", "a ENDSWITH 'e'", "a NOT CONTAINS '7'", "a NOT ENDSWITH ''")
BAD = ("a >", "a > 'x'", "a = NULL", "a BETWEEN 3 AND 1", "", "a # 1")

NameServers = Callable[[str], ApacheNameServer]


def our_verdict(case: Case) -> str:
    try:
        return "FTNX"[compile_sql(case.condition).verdict(case.properties)]
    except BadExpressionError:
        return "B"


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_thousands_of_conditions_mean_the_same(version: str, tmp_path: Path) -> None:
    """Goal: which compile, and what each gives for which properties; every verdict occurs often."""
    try:
        release = obtain(version)
    except ApacheUnavailable as reason:
        pytest.skip(str(reason))
    seed = random.randrange(1 << 30)
    cases = list(Conditions(random.Random(seed), newer=not release.is_4x).cases(10_000))
    theirs = apache_verdicts(release, cases, tmp_path)
    assert len(theirs) == len(cases)
    wrong = [
        (case, said, our_verdict(case)) for case, said in zip(cases, theirs, strict=True) if said != our_verdict(case)
    ]
    assert not wrong, f"seed {seed}: {len(wrong)} of {len(cases)} differ, the first: {wrong[0]}"
    assert all(theirs.count(verdict) > 1_000 for verdict in "BTFNX")


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_brokers_deliver_the_same(version: str, nameserver: NameServers, tmp_path: Path) -> None:
    """Goal: the same messages and conditions, in requests and in heartbeats, at Apache's broker and at ours; and the
    file that both keep."""
    conditions = (*GOOD, *(() if version.startswith("4.") else NEWER))
    port, work = free_broker_port(), tmp_path / "apache"
    with (
        ApacheBroker(nameserver(version), port=port, store=tmp_path / "store", work=work, settings=FILTERING) as apache,
        EmbeddedCluster(settings=FILTERING) as ours,
    ):
        theirs = asyncio.run(ask_all(apache.address, conditions))
        assert asyncio.run(ask_all(ours.broker_addr, conditions)) == theirs
        assert len(set(theirs.values())) > 10
        # Apache delivers everything when a condition in a request is bad; we say so instead.
        assert asyncio.run(pull_codes(apache.address, BAD)) == {**dict.fromkeys(BAD, 0), "": 23}
        assert asyncio.run(pull_codes(ours.broker_addr, BAD)) == dict.fromkeys(BAD, 23)
        for addr in (apache.address, ours.broker_addr):
            asyncio.run(leave_a_condition(addr))
        apache.stop()
        ours.stop_broker()
        wrote, wanted = kept_filters(ours.store_dir()), kept_filters(tmp_path / "store")
        assert shape(json.loads(wrote)) == shape(json.loads(wanted))
        both = [ConsumerFilterTable.decode(text).topics[TOPIC].groups["kept"].bloom for text in (wrote, wanted)]
        assert both[0] == both[1]
    filters = ConsumerFilters(BloomGeometry.of())
    filters.load(ConsumerFilterTable.decode(wanted), now_ms=0)
    known = filters.get("kept", TOPIC)
    assert known is not None
    assert (known.expression, known.version) == ("a > 5", 9)


Answers = dict[tuple[str, str], tuple[int, tuple[str, ...], str]]


async def ask_all(addr: str, conditions: tuple[str, ...]) -> Answers:
    """What comes for each condition: code, bodies and next offset."""
    answers: Answers = {}
    async with connected(addr) as (peer,):
        await fill(peer)
        for condition in conditions:
            answers["request", condition] = await ask(peer, subscription=condition)
        for version, condition in enumerate((*conditions, *BAD), start=1):
            await subscribe(peer, condition, version)
            answers["heartbeat", condition] = await ask(peer, sysFlag=0, subscription=None, subVersion=version)
            checked = await peer.ask(RequestCode.CHECK_CLIENT_CONFIG, body=check_body(condition))
            answers["check", condition] = checked.code, (), ""
    return answers


async def fill(peer: Peer) -> None:
    await make_topic(peer, TOPIC, queues=1)

    async def is_there() -> bool:
        return (await send(peer, TOPIC, b"first", properties=props(TAGS="TagA"))).code == 0

    await eventually(is_there)
    for value in VALUES:
        answer = await send(peer, TOPIC, value.encode() or b"empty", properties=props(TAGS="TagB", a=value, b="6.75"))
        assert answer.code == 0

    async def are_dispatched() -> bool:
        asked = await peer.ask(RequestCode.GET_MAX_OFFSET, {"topic": TOPIC, "queueId": 0})
        return int(asked.ext_fields["offset"]) == len(VALUES) + 1

    await eventually(are_dispatched)


async def ask(peer: Peer, **given: object) -> tuple[int, tuple[str, ...], str]:
    answer = await pull(peer, TOPIC, group=GROUP, expressionType="SQL92", **given)
    bodies = tuple(record.body.decode() for record in records(answer)) if answer.code == 0 else ()
    return answer.code, bodies, answer.ext_fields.get("nextBeginOffset", "")


async def pull_codes(addr: str, conditions: tuple[str, ...]) -> dict[str, int]:
    async with connected(addr) as (peer,):
        return {condition: (await ask(peer, subscription=condition))[0] for condition in conditions}


async def leave_a_condition(addr: str) -> None:
    async with connected(addr) as (peer,):
        await subscribe(peer, "a > 5", 9, group="kept")


def kept_filters(root: Path) -> bytes:
    return (root / "config" / "consumerFilter.json").read_bytes()


def shape(value: object) -> object:
    """Which members there are, and of which kinds."""
    return {name: shape(each) for name, each in value.items()} if isinstance(value, dict) else type(value).__name__


async def subscribe(peer: Peer, condition: str, version: int, group: str = GROUP) -> None:
    data = Heartbeat(client_id="c", consumers=(ConsumerData(group=group, subscriptions=(of(condition, version),)),))
    assert (await peer.ask(RequestCode.HEART_BEAT, body=data.encode())).code == 0


def of(condition: str, version: int = 1) -> Subscription:
    return Subscription(topic=TOPIC, expression=condition, expression_type="SQL92", version=version)


def check_body(condition: str) -> bytes:
    return CheckClient(client_id="c", group=GROUP, subscription=of(condition)).encode()
