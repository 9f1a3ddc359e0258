"""Access without signatures, and with a table of accounts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rocketq.access.rights import Action
from rocketq.broker.pipeline.access import Access, OpenAccess, SignedAccess
from rocketq.kernel.signatures import SignatureCheck
from rocketq.protocol.acl import ACCESS_KEY, SIGNATURE, Credentials, sign
from rocketq.protocol.codes import ResponseCode
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import encode_command

CONNECTION: Any = None
ALICE, BOB = Credentials("alice", "secret-a"), Credentials("bob", "secret-b")
REQUEST = Command(code=310, opaque=5, ext_fields={"b": "T", "i": 'TAGS\x01"a"\x02'}, body=b"body")


def signed_access() -> SignedAccess:
    return SignedAccess({each.access_key: each.secret_key for each in (ALICE, BOB)})


def with_fields(request: Command, **fields: str) -> Command:
    return replace(request, ext_fields={**request.ext_fields, **fields})


def test_open_access_lets_everybody_do_everything() -> None:
    access: Access = OpenAccess()
    assert access.accounts is None
    assert not access.depends_on_connection
    assert access.check(REQUEST, CONNECTION) is None
    assert access.principal_of(sign(REQUEST, ALICE), CONNECTION) is None
    assert access.denial(Action.PUBLISH, "T", "G", None, CONNECTION) is None


@pytest.mark.parametrize("form", HeaderForm)
@pytest.mark.parametrize("credentials", [ALICE, BOB, replace(ALICE, security_token="tok")])
def test_signed_requests_pass_in_both_ways(form: HeaderForm, credentials: Credentials) -> None:
    """Goal: what check() accepts the kernel's accounts accept, for the same principal."""
    access, request = signed_access(), sign(replace(REQUEST, form=form), credentials)
    assert access.check(request, CONNECTION) is None
    assert access.principal_of(request, CONNECTION) == credentials.access_key
    account = SignatureCheck().signer_of(bytes(encode_command(request)), access.accounts)
    assert account is not None
    assert account.owner == credentials.access_key
    for action in (Action.PUBLISH, Action.SUBSCRIBE):
        assert access.denial(action, "T", "G", credentials.access_key, CONNECTION) is None


@pytest.mark.parametrize("form", HeaderForm)
@pytest.mark.parametrize(
    ("request_", "remark"),
    [
        (REQUEST, "the request is not signed: it has no AccessKey"),
        (with_fields(sign(REQUEST, ALICE), **{ACCESS_KEY: ""}), "the request is not signed: it has no AccessKey"),
        (sign(REQUEST, replace(ALICE, access_key="carol")), "access key carol is unknown"),
        (sign(REQUEST, replace(ALICE, access_key="x" * 100)), f"access key {'x' * 64} is unknown"),
        (sign(REQUEST, replace(ALICE, secret_key="secret-b")), "wrong signature for access key alice"),
        (with_fields(REQUEST, **{ACCESS_KEY: "alice"}), "wrong signature for access key alice"),
        (with_fields(sign(REQUEST, ALICE), **{ACCESS_KEY: "bob"}), "wrong signature for access key bob"),
        (with_fields(sign(REQUEST, ALICE), b="U"), "wrong signature for access key alice"),
        (with_fields(sign(REQUEST, ALICE), more="x"), "wrong signature for access key alice"),
        (replace(sign(REQUEST, ALICE), body=b"Body"), "wrong signature for access key alice"),
        (with_fields(sign(REQUEST, ALICE), **{SIGNATURE: "é"}), "wrong signature for access key alice"),
    ],
)
def test_other_requests_are_rejected_in_both_ways(form: HeaderForm, request_: Command, remark: str) -> None:
    access, request = signed_access(), replace(request_, form=form)
    answer = access.check(request, CONNECTION)
    assert answer is not None
    assert (answer.code, answer.remark, answer.opaque) == (ResponseCode.NO_PERMISSION, remark, 5)
    assert answer.form is form
    assert SignatureCheck().signer_of(bytes(encode_command(request)), access.accounts) is None
