"""Signatures verified by the kernel, against hmac and against the Python that signs for clients."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import hmac
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rocketq.kernel
from rocketq.kernel.signatures import VALUES_BYTES_MAX, Account, Accounts, SignatureCheck
from rocketq.protocol.acl import ACCESS_KEY, SIGNATURE, UNIQUE_KEY_QUERY, Credentials, is_signed, sign, signature_of
from rocketq.protocol.command import Command, HeaderForm
from rocketq.protocol.frame import decode_command, encode_command

KEYS = Credentials("rocketmq2", "12345678")
SEND = Command(
    code=310,
    ext_fields={
        **{"a": "PG", "b": "TopicTest", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1600000000000"},
        **{"h": "0", "i": "TAGS\x01TagA\x02", "j": "0", "k": "false", "m": "false"},
    },
    body=b"hello",
)
HEARTBEAT = Command(code=34, body=b"{}")
FORMS = (HeaderForm.JSON, HeaderForm.BINARY)


def accounts_of(*secrets: str, access_key: str = KEYS.access_key) -> Accounts:
    accounts = Accounts()
    accounts.put(Account(access_key.encode(), [secret.encode() for secret in secrets], "owner"))
    return accounts


def is_verified(frame: bytes, *secrets: str, access_key: str = KEYS.access_key) -> bool:
    """Whether the kernel finds the signature of a whole frame valid."""
    account = SignatureCheck().signer_of(frame, accounts_of(*secrets, access_key=access_key))
    assert account is None or account.owner == "owner"
    return account is not None


def signed_frame(command: Command, signature: bytes | str, **fields: str) -> bytes:
    text = signature if isinstance(signature, str) else base64.b64encode(signature).decode()
    ext_fields = {**command.ext_fields, **fields, ACCESS_KEY: KEYS.access_key, SIGNATURE: text}
    return bytes(encode_command(replace(command, ext_fields=ext_fields)))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("command", "signature", "fields"),
    [
        (SEND, "VdXBFcUf+2cZ/9UWeiNdLS5FckI=", {}),
        (HEARTBEAT, "rSstUKkrER5aSJ6DGS3kFVeNxfw=", {}),
        (HEARTBEAT, "5OMu2FxFeRHZ07X7cA1NgqAI3Dw=", {"SecurityToken": "tok"}),
    ],
)
def test_signatures_of_java_are_valid(
    form: HeaderForm, command: Command, signature: str, fields: dict[str, str]
) -> None:
    frame = signed_frame(replace(command, form=form), signature, **fields)
    assert is_verified(frame, KEYS.secret_key)
    assert not is_verified(frame, KEYS.secret_key + "9")


@pytest.mark.parametrize(
    ("key", "data", "digest"),
    [
        (b"\x0b" * 20, b"Hi There", "b617318655057264e28bc0b6fb378c8ef146be00"),
        (b"Jefe", b"what do ya want for nothing?", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        (b"\xaa" * 20, b"\xdd" * 50, "125d7342b9ac11cd91a39af48aa17b4f63f175d3"),
        (bytes(range(1, 26)), b"\xcd" * 50, "4c9007f4026250c6bc8414f9bf50c86c2d7235da"),
        (b"\x0c" * 20, b"Test With Truncation", "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04"),
        (
            b"\xaa" * 80,
            b"Test Using Larger Than Block-Size Key - Hash Key First",
            "aa4ae5e15272d00e95705637ce8a3b55ed402112",
        ),
        (
            b"\xaa" * 80,
            b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data",
            "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
        ),
    ],
)
def test_vectors_of_rfc_2202(key: bytes, data: bytes, digest: str) -> None:
    """Goal: HMAC-SHA1 as the standard has it; an empty access key leaves nothing but the body to be signed."""
    accounts = Accounts()
    accounts.put(Account(b"", [key], None))
    fields = {ACCESS_KEY: "", SIGNATURE: base64.b64encode(bytes.fromhex(digest)).decode()}
    frame = bytes(encode_command(Command(code=34, ext_fields=fields, body=data)))
    assert SignatureCheck().signer_of(frame, accounts) is not None


@pytest.mark.parametrize("secret_len", [0, 1, 63, 64, 65, 200])
def test_texts_of_every_length_around_blocks(secret_len: int) -> None:
    """Goal: no border between blocks, between fields and body, or in the padding is off by one."""
    secret = "s" * secret_len
    check, accounts = SignatureCheck(), accounts_of(secret)
    for field_len in (0, 1, 38, 46, 47, 54, 55, 56, 110, 119):
        for body_len in range(140):
            body = bytes(index % 251 for index in range(body_len))
            text = ("v" * field_len + KEYS.access_key).encode()
            # capital letters sort first: AccessKey comes before the field z
            text = text[field_len:] + text[:field_len] + body
            frame = signed_frame(
                replace(HEARTBEAT, body=body), hmac.digest(secret.encode(), text, "sha1"), z="v" * field_len
            )
            assert check.signer_of(frame, accounts) is not None, (field_len, body_len)


NAMES = st.text(st.sampled_from("abzABZ_09"), min_size=1, max_size=20)
VALUES = st.text(st.sampled_from('aZ09 \x01\x02\t\n\r"\\/=+'), max_size=80)


@settings(deadline=None)
@given(
    fields=st.dictionaries(NAMES, VALUES, max_size=20),
    body=st.binary(max_size=300),
    form=st.sampled_from(FORMS),
    token=st.none() | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=10),
)
def test_requests_of_our_clients_are_verified(
    fields: dict[str, str], body: bytes, form: HeaderForm, token: str | None
) -> None:
    """Goal: what protocol.acl signs the kernel verifies, in any order of the fields, escaped or not."""
    command = sign(Command(code=310, ext_fields=fields, body=body, form=form), replace(KEYS, security_token=token))
    shuffled = dict(sorted(command.ext_fields.items(), key=lambda item: hashlib.sha1(item[0].encode()).digest()))
    for each in (command, replace(command, ext_fields=shuffled)):
        frame = bytes(encode_command(each))
        assert is_verified(frame, KEYS.secret_key)
        assert not is_verified(frame, "87654321")


@settings(deadline=None)
@given(data=st.data(), form=st.sampled_from(FORMS))
def test_a_damaged_request_is_valid_only_if_python_says_so(data: st.DataObject, form: HeaderForm) -> None:
    """Goal: the kernel never finds valid what protocol.acl would not."""
    frame = bytearray(encode_command(sign(replace(SEND, form=form), KEYS)))
    at = data.draw(st.integers(8, len(frame) - 1))
    frame[at] = data.draw(st.integers(0, 255))
    if is_verified(bytes(frame), KEYS.secret_key):
        assert is_signed(decode_command(bytes(frame[4:])), KEYS.secret_key)


def test_any_other_byte_makes_the_signature_wrong() -> None:
    frame = bytes(encode_command(sign(replace(SEND, form=HeaderForm.BINARY), KEYS)))
    assert is_verified(frame, KEYS.secret_key)
    for old, new in ((b"hello", b"hellp"), (b"TopicTest", b"TopicTesu"), (b"\x01TagA", b"\x01TagB")):
        assert not is_verified(frame.replace(old, new), KEYS.secret_key)


@pytest.mark.parametrize("at", [0, 13, 26, 27])
def test_one_other_character_of_the_signature_is_enough(at: int) -> None:
    """Goal: all of it is compared, the padding too; bits that decode to nothing count as well."""
    right = sign(SEND, KEYS).ext_fields[SIGNATURE]
    for other in ("A" if right[at] != "A" else "B", "-"):
        assert not is_verified(signed_frame(SEND, right[:at] + other + right[at + 1 :]), KEYS.secret_key)


@pytest.mark.parametrize("change", [lambda text: text[:-1], lambda text: text + "\n", lambda text: "", str.lower])
def test_signature_of_another_length_or_case_is_wrong(change: object) -> None:
    right = sign(SEND, KEYS).ext_fields[SIGNATURE]
    assert callable(change)
    assert not is_verified(signed_frame(SEND, change(right)), KEYS.secret_key)


def test_either_of_two_secrets_is_valid() -> None:
    """Goal: a secret is changed without a moment at which clients are rejected."""
    old, new = (bytes(encode_command(sign(SEND, replace(KEYS, secret_key=secret)))) for secret in ("old1", "new1"))
    assert [is_verified(frame, "old1", "new1") for frame in (old, new)] == [True, True]
    assert [is_verified(frame, "new1") for frame in (old, new)] == [False, True]
    assert not is_verified(old, "new1", "new2")


@pytest.mark.parametrize("secrets", [[], [b"1", b"2", b"3"]])
def test_accounts_have_one_or_two_secrets(secrets: list[bytes]) -> None:
    with pytest.raises(ValueError, match=f"got {len(secrets)}"):
        Account(b"key", secrets, None)


def test_accounts_are_replaced_and_removed() -> None:
    """Goal: the account found last is forgotten with every change."""
    check, accounts = SignatureCheck(), accounts_of(KEYS.secret_key)
    frame = bytes(encode_command(sign(SEND, KEYS)))
    found = check.signer_of(frame, accounts)
    assert found is not None
    assert found is check.signer_of(frame, accounts) is accounts.get(b"rocketmq2")
    accounts.put(Account(b"rocketmq2", [b"changed!"], None))
    assert (check.signer_of(frame, accounts), len(accounts)) == (None, 1)
    accounts.put(found)
    accounts.put(Account(b"another", [b"12345678"], None))
    assert check.signer_of(frame, accounts) is found
    other = bytes(encode_command(sign(SEND, replace(KEYS, access_key="another"))))
    assert check.signer_of(other, accounts) is accounts.get(b"another")
    accounts.remove(b"rocketmq2")
    accounts.remove(b"never there")
    assert (check.signer_of(frame, accounts), len(accounts)) == (None, 1)


@pytest.mark.parametrize("form", FORMS)
def test_a_request_that_is_not_plain_is_left_to_python(form: HeaderForm) -> None:
    """Goal: valid for Python, doubtful for the kernel: names that are not ASCII, the field that clients sign or not."""
    for fields in ({"\u00e9": "x"}, {UNIQUE_KEY_QUERY: "true"}):
        command = sign(replace(SEND, form=form, ext_fields={**SEND.ext_fields, **fields}), KEYS)
        assert is_signed(command, KEYS.secret_key)
        assert not is_verified(bytes(encode_command(command)), KEYS.secret_key)


def test_requests_without_credentials_are_of_nobody() -> None:
    unsigned = replace(SEND, ext_fields={**SEND.ext_fields, ACCESS_KEY: KEYS.access_key})
    for command in (SEND, HEARTBEAT, unsigned, replace(SEND, ext_fields={SIGNATURE: "x" * 28})):
        assert not is_verified(bytes(encode_command(command)), KEYS.secret_key)
    for garbage in (b"", b"1234567", bytes(8), b"\xff" * 40, bytes(encode_command(SEND))[:60]):
        assert not is_verified(garbage, KEYS.secret_key)


@pytest.mark.parametrize("twice", ["b", SIGNATURE, ACCESS_KEY])
def test_a_field_that_comes_twice_is_left_to_python(twice: str) -> None:
    """Goal: nobody signs one value and has another one executed."""
    signed = sign(replace(SEND, form=HeaderForm.BINARY), KEYS)
    value = signed.ext_fields[twice]
    frame = bytes(encode_command(signed))
    field = len(twice).to_bytes(2, "big") + twice.encode() + len(value).to_bytes(4, "big") + value.encode()
    assert frame.count(field) == 1
    body_at = 8 + int.from_bytes(frame[5:8], "big")
    ext_at = 8 + 17
    ext_len = int.from_bytes(frame[ext_at : ext_at + 4], "big") + len(field)
    longer = frame[8:ext_at] + ext_len.to_bytes(4, "big") + frame[ext_at + 4 : body_at] + field
    doubled = (4 + len(longer) + 5).to_bytes(4, "big") + b"\x01" + len(longer).to_bytes(3, "big") + longer + b"hello"
    assert decode_command(doubled[4:]).ext_fields == signed.ext_fields
    assert not is_verified(doubled, KEYS.secret_key)


@pytest.mark.parametrize("value", [r"\u00e9", r"\ud83d\ude00", r"\b", r"\u0000", r"\x41", r"\u00g1", r"\u00"])
def test_escapes_that_are_not_plain_are_left_to_python(value: str) -> None:
    plain = '{"code":34,"extFields":{"AccessKey":"rocketmq2","Signature":"%s","p":"%s"},"flag":0,"opaque":1}'
    text = "rocketmq2" + value
    header = (plain % (base64.b64encode(hmac.digest(b"12345678", text.encode(), "sha1")).decode(), value)).encode()
    frame = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    assert not is_verified(frame, KEYS.secret_key)


def test_numbers_and_booleans_of_json_count_as_their_text() -> None:
    text = b"rocketmq2" + b"-12true"
    signature = base64.b64encode(hmac.digest(b"12345678", text, "sha1")).decode()
    header = b'{"code":34,"extFields":{"b":true,"a":-12,"Signature":"%s","AccessKey":"rocketmq2"}}' % signature.encode()
    assert is_verified((4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header, "12345678")


@pytest.mark.parametrize("form", FORMS)
def test_values_longer_than_the_buffer_are_left_to_python(form: HeaderForm) -> None:
    """Goal: the longest that fit are verified, one byte more is not written anywhere."""
    room = VALUES_BYTES_MAX - len(KEYS.access_key)
    verified = []
    for lengths in ((room, 0), (room - 5, 5), (room + 1, 0), (room - 5, 6), (1 << 20, 1)):
        fields = dict(zip("ab", ("x" * count for count in lengths), strict=True))
        command = sign(Command(code=34, ext_fields=fields, body=b"body", form=form), KEYS)
        verified.append(is_verified(bytes(encode_command(command)), KEYS.secret_key))
    assert verified == [True, True, False, False, False]


# The leaves in C

HARNESS = """
#include "sha1.h"
void portable(uint32_t *state, const rq_byte *p, size_t blocks) { rq_sha1_portable(state, p, blocks); }
void extended(uint32_t *state, const rq_byte *p, size_t blocks) { rq_sha1_extended(state, p, blocks); }
int has_sha(void) { return rq_has_sha(); }
"""
START = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0)


@pytest.fixture(scope="module")
def leaves(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """Both forms of SHA-1's compression, from the kernel's own header."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler was found")
    folder = tmp_path_factory.mktemp("leaves")
    (folder / "harness.c").write_text(HARNESS)
    include = Path(rocketq.kernel.__file__).parent
    command = [compiler, "-O2", "-shared", "-fPIC", "-w", f"-I{include}", "-o", "leaves.so", "harness.c"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "leaves.so"))


@pytest.mark.parametrize("form", ["portable", "extended"])
def test_both_forms_of_sha1_are_hashlibs(leaves: ctypes.CDLL, form: str) -> None:
    """Goal: a machine without the instructions computes the same, block by block and many at once."""
    if form == "extended" and not leaves.has_sha():
        pytest.skip("this processor has no SHA instructions")
    for count in (*range(130), 1_000, 65_536):
        data = bytes(index * 7 % 256 for index in range(count))
        padded = data + b"\x80" + bytes((55 - count) % 64) + (8 * count).to_bytes(8, "big")
        state = (ctypes.c_uint32 * 5)(*START)
        getattr(leaves, form)(state, padded, ctypes.c_size_t(len(padded) // 64))
        assert b"".join(word.to_bytes(4, "big") for word in state) == hashlib.sha1(data).digest()


def test_signature_of_compares_as_text() -> None:
    """Goal: the Python side that is compared with is itself the formula of the specification."""
    fields = {"b": "2", "A": "1", SIGNATURE: "not signed"}
    expected = base64.b64encode(hmac.digest(b"secret", b"12body", "sha1")).decode()
    assert signature_of(fields, b"body", "secret") == expected
