"""Signed requests, with the signatures Apache 4.7.1 makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rocketq.protocol.acl import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, Credentials, is_signed, sign, signature_of
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import decode_command, encode_command

SEND = Command(
    code=310,
    ext_fields={
        "a": "PG",
        "b": "TopicTest",
        "c": "TBW102",
        "d": "4",
        "e": "0",
        "f": "0",
        "g": "1600000000000",
        "h": "0",
        "i": "TAGS\x01TagA\x02",
        "j": "0",
        "k": "false",
        "m": "false",
    },
    body=b"hello",
)
HEARTBEAT = Command(code=34, body=b"{}")
KEYS = Credentials("rocketmq2", "12345678")


@pytest.mark.parametrize(
    ("request_", "credentials", "signature"),
    [
        (SEND, KEYS, "VdXBFcUf+2cZ/9UWeiNdLS5FckI="),
        (HEARTBEAT, KEYS, "rSstUKkrER5aSJ6DGS3kFVeNxfw="),
        (HEARTBEAT, replace(KEYS, security_token="tok"), "5OMu2FxFeRHZ07X7cA1NgqAI3Dw="),
    ],
)
def test_signatures_are_those_of_java(request_: Command, credentials: Credentials, signature: str) -> None:
    signed = sign(request_, credentials)
    assert signed.ext_fields[SIGNATURE] == signature
    assert signed.ext_fields[ACCESS_KEY] == "rocketmq2"
    assert is_signed(signed, credentials.secret_key)


def test_empty_fields_are_not_in_the_binary_form() -> None:
    """Goal: Java reads an empty text of that form as null and signs the word; JSON keeps it as it is."""
    batch = replace(SEND, code=320, ext_fields={**SEND.ext_fields, "i": "", "m": "true"})
    signed = sign(replace(batch, form=HeaderForm.BINARY), KEYS)
    assert "i" not in signed.ext_fields
    assert signed.ext_fields[SIGNATURE] == sign(batch, KEYS).ext_fields[SIGNATURE]
    assert is_signed(decode_command(encode_command(signed)[4:]), KEYS.secret_key)
    assert sign(batch, KEYS).ext_fields["i"] == ""


def test_a_changed_request_is_not_signed() -> None:
    signed = sign(SEND, KEYS)
    assert not is_signed(replace(signed, body=b"hell0"), KEYS.secret_key)
    assert not is_signed(replace(signed, ext_fields={**signed.ext_fields, "b": "Other"}), KEYS.secret_key)
    assert not is_signed(signed, "87654321")
    assert not is_signed(SEND, KEYS.secret_key)
    assert not is_signed(replace(SEND, ext_fields={SIGNATURE: "é\ud800"}), KEYS.secret_key)


def test_the_unique_key_switch_may_be_signed_or_not() -> None:
    """Goal: 4.x and 5.x clients differ in it; queries of both pass."""
    query = replace(SEND, ext_fields={**SEND.ext_fields, UNIQUE_KEY_QUERY: "true", ACCESS_KEY: "rocketmq2"})
    without = {name: text for name, text in query.ext_fields.items() if name != UNIQUE_KEY_QUERY}
    for signed_fields in (without, query.ext_fields):
        signature = signature_of(signed_fields, query.body, KEYS.secret_key)
        assert is_signed(replace(query, ext_fields={**query.ext_fields, SIGNATURE: signature}), KEYS.secret_key)


def test_secrets_do_not_show() -> None:
    assert "12345678" not in repr(replace(KEYS, security_token="12345678"))
