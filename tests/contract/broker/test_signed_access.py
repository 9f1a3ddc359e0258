"""Signed requests over loopback: the kernel and the handlers accept the same ones, in both header forms."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rocketq.access.control import Denial
from rocketq.broker.pipeline.access import SignedAccess
from rocketq.protocol.acl import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, Credentials, sign
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command, HeaderForm
from tests.contract.broker.kit import (
    Peer,
    beat,
    connected,
    letters,
    over_loopback,
    pull_fields,
    running_broker,
    send_fields,
    vip_addr,
)
from tests.contract.broker.test_guards import batches, codes_of, pulls, sends, stored

ALICE, BOB, NOBODY = Credentials("alice", "secret-a"), Credentials("bob", "secret-b"), Credentials("carol", "secret-c")
UNKNOWN = 29_997
FORMS = pytest.mark.parametrize("form", HeaderForm)


def access() -> SignedAccess:
    return SignedAccess({each.access_key: each.secret_key for each in (ALICE, BOB)})


def signed(requests: list[Command], credentials: Credentials = ALICE, form: HeaderForm | None = None) -> list[Command]:
    return [sign(replace(each, form=form or each.form), credentials) for each in requests]


async def prepare(peer: Peer) -> None:
    """A topic with messages, and a group that pulls them."""
    fields = {"topic": "T", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6, "topicFilterType": "SINGLE_TAG",
              "topicSysFlag": 0, "order": "false", "defaultTopic": "TBW102"}  # fmt: skip
    make = [peer.request(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)]
    for requests in (make, sends(peer, count=1), sends(peer, count=1), pulls(peer, count=1)):
        assert await codes_of(peer, *signed(requests)) == [0]


def others(peer: Peer) -> list[Command]:
    """Requests that are no sends and no pulls."""
    return [
        peer.request(RequestCode.HEART_BEAT, body=beat("client", "g", topic="T")),
        peer.request(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0}),
        peer.request(UNKNOWN),
    ]


@FORMS
@over_loopback
async def test_the_fast_path_executes_what_accounts_have_signed(tmp_path: Path, form: HeaderForm) -> None:
    """Goal: right signatures of both accounts, by turns on one connection, with grants of their own."""
    async with running_broker(tmp_path, access()) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        fast = broker.fast_paths[0]
        before, taken, pulled = stored(broker), fast.taken, fast.pulls_taken
        turns = []
        for number in range(20):
            who = (ALICE, BOB, replace(ALICE, security_token="token"))[number % 3]
            turns += signed([*sends(peer, count=1), *batches(peer, count=1), *pulls(peer, count=1)], who, form)
        assert await codes_of(peer, *turns) == [0] * 60
        assert stored(broker) - before == 20 * 4
        assert (fast.taken - taken, fast.pulls_taken - pulled) == (80, 20)
        assert await codes_of(peer, *signed(others(peer), BOB, form)) == [0, 0, 3]


def tampered(request: Command) -> list[Command]:
    """What must not pass, each made of a request that does not change the outcome of the others."""
    right = sign(request, ALICE)
    fields = dict(right.ext_fields)
    without = {name: text for name, text in fields.items() if name != SIGNATURE}
    return [
        request,
        sign(request, NOBODY),
        sign(request, replace(ALICE, secret_key="secret-b")),
        replace(right, ext_fields={**fields, ACCESS_KEY: "bob"}),
        replace(right, ext_fields={**fields, ACCESS_KEY: ""}),
        replace(right, ext_fields=without),
        replace(right, ext_fields={**without, SIGNATURE: ""}),
        replace(right, ext_fields={**without, SIGNATURE: fields[SIGNATURE][:-1]}),
        replace(right, ext_fields={**without, SIGNATURE: fields[SIGNATURE].swapcase()}),
        replace(right, ext_fields={**fields, "extra": "x"}),
        replace(right, ext_fields={**fields, "i": "TAGS\x01other"}),
        replace(right, body=right.body + b"x"),
    ]


@FORMS
@pytest.mark.parametrize("port", ["main", "vip"])
@over_loopback
async def test_nothing_else_is_executed(tmp_path: Path, form: HeaderForm, port: str) -> None:
    """Goal: unsigned, unknown, wrong, and changed after it was signed: code 16, nothing stored, given or known."""
    async with (
        running_broker(tmp_path, access()) as broker,
        connected(broker.addr, broker.addr if port == "main" else vip_addr(broker)) as (main, peer),
    ):
        await prepare(main)
        assert await codes_of(peer, *signed(sends(peer, count=3), form=form)) == [0] * 3
        before, pulled = stored(broker), broker.fast_paths[0].pulls_taken
        for make in (sends, batches, pulls):
            served = make is not pulls or port == "main"
            (plain,) = make(peer, count=1)
            bad = tampered(replace(plain, form=form))
            for number, request in enumerate(bad):
                between = signed(make(peer, count=1), form=form) if served else []
                first, *rest = await peer.ask_together(replace(request, opaque=10_000 + number), *between)
                assert first.code == 16, (number, first)
                assert [answer.code for answer in rest] == [0] * len(between)
        assert stored(broker) - before == len(bad) * 4
        assert broker.fast_paths[0].pulls_taken - pulled == (len(bad) if port == "main" else 0)
        assert await codes_of(peer, *(replace(each, form=form) for each in others(peer))) == [16] * 3
        assert broker.parts.admission.consumers.get("g") is None


@FORMS
@over_loopback
async def test_signed_fields_that_the_kernel_does_not_know_are_for_the_handlers(
    tmp_path: Path, form: HeaderForm
) -> None:
    """Goal: right signatures over fields that are not plain are right: extra ones, escapes, other scripts, and the
    one that clients sign or do not."""
    async with running_broker(tmp_path, access()) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        before = stored(broker)
        for fields in (
            {"extra": "x"},
            {"i": 'KEYS\x01"quoted\\" /\ttab\x02TAGS\x01a\x02'},
            {"i": "KEYS\x01键\x02"},
            {"名": "x"},
            {UNIQUE_KEY_QUERY: "true"},
            {f"x{number}": "y" for number in range(60)},
        ):
            send: dict[str, Any] = {**letters(send_fields("T")), **fields}
            pull: dict[str, Any] = {**pull_fields("T"), **{k: v for k, v in fields.items() if k != "i"}}
            requests = [
                peer.request(RequestCode.SEND_MESSAGE_V2, send, b"body"),
                peer.request(RequestCode.PULL_MESSAGE, pull),
            ]
            assert await codes_of(peer, *signed(requests, BOB, form)) == [0, 0], fields
        assert stored(broker) - before == 6
        unsigned_query = sign(peer.request(RequestCode.SEND_MESSAGE_V2, letters(send_fields("T")), b"body"), ALICE)
        more = {**unsigned_query.ext_fields, UNIQUE_KEY_QUERY: "true"}
        assert await codes_of(peer, replace(unsigned_query, ext_fields=more)) == [0]


@over_loopback
async def test_grants_of_one_account_are_nothing_to_another(tmp_path: Path) -> None:
    """Goal: after much traffic of one account another is still asked about, and denied what it may not do."""

    class OnlyAlice(SignedAccess):
        def denial(self, action: Any, topic: str, group: str, principal: str | None, connection: Any) -> Denial | None:
            return None if principal == "alice" else Denial(16, f"{principal} may not {action.value} {topic}")

    secrets = {each.access_key: each.secret_key for each in (ALICE, BOB)}
    async with running_broker(tmp_path, OnlyAlice(secrets)) as broker, connected(broker.addr) as (peer,):
        await prepare(peer)
        before, taken = stored(broker), broker.fast_paths[0].taken
        turns = []
        for _ in range(20):
            for who in (ALICE, BOB):
                turns += signed([*sends(peer, count=1), *pulls(peer, count=1)], who)
        answers = await peer.ask_together(*turns)
        assert [answer.code for answer in answers] == [0, 0, 16, 16] * 20
        assert {answer.remark for answer in answers[2::4]} == {"bob may not Pub T"}
        assert {answer.remark for answer in answers[3::4]} == {"bob may not Sub T"}
        assert stored(broker) - before == broker.fast_paths[0].taken - taken == 20
