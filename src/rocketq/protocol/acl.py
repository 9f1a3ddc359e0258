"""Signed requests.

What is signed are the values of all ext fields but the signature, sorted by name and put together without
separators, then the body; the signature is their HMAC-SHA1 with the secret key, in Base64.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from rocketq.protocol.command import Command, HeaderForm

ACCESS_KEY: Final = "AccessKey"
SIGNATURE: Final = "Signature"
SECURITY_TOKEN: Final = "SecurityToken"
UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
SIGNED_AT: Final = "X-Signed-At"
"""Ours: when a request was signed, in milliseconds, so that a captured one cannot be sent again later."""
NONCE: Final = "X-Nonce"
"""Ours: a random text that a broker accepts once."""


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)
    fresh: bool = False
    """Sign a time and a nonce, too, so that brokers with requireFreshSignature accept a request once."""


def sign(command: Command, credentials: Credentials, *, signed_at_ms: int = 0, nonce: str = "") -> Command:
    """The request with access key, token and signature in its ext fields; all other fields must be there already.

    Empty ones stay away from the binary form: Java reads them as null there, and then signs the text "null".
    """
    kept = command.ext_fields
    if command.form is HeaderForm.BINARY:
        kept = {name: text for name, text in kept.items() if text}
    ext_fields = {**kept, ACCESS_KEY: credentials.access_key}
    if credentials.security_token is not None:
        ext_fields[SECURITY_TOKEN] = credentials.security_token
    if nonce:
        ext_fields |= {SIGNED_AT: str(signed_at_ms), NONCE: nonce}
    ext_fields[SIGNATURE] = signature_of(ext_fields, command.body, credentials.secret_key)
    return replace(command, ext_fields=ext_fields)


def is_signed(command: Command, secret_key: str) -> bool:
    """Whether the signature is right. Clients differ in whether they sign `_UNIQUE_KEY_QUERY`, so both count."""
    claimed = command.ext_fields.get(SIGNATURE, "").encode("utf-8", "replace")
    shortened = {name: text for name, text in command.ext_fields.items() if name != UNIQUE_KEY_QUERY}
    rights = [signature_of(fields, command.body, secret_key).encode() for fields in (shortened, command.ext_fields)]
    return any(hmac.compare_digest(claimed, right) for right in rights)


def is_unicode(text: str) -> bool:
    """Whether UTF-8 has the text. Lone surrogates, which JSON and YAML can escape, it does not have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def signature_of(ext_fields: Mapping[str, str], body: bytes, secret_key: str) -> str:
    digest = hmac.new(secret_key.encode(), signed_content(ext_fields, body), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def signed_content(ext_fields: Mapping[str, str], body: bytes) -> bytes:
    """Names sort as Java sorts them, by UTF-16 units."""
    names = sorted(
        (name for name in ext_fields if name != SIGNATURE), key=lambda name: name.encode("utf-16-be", "replace")
    )
    return "".join(ext_fields[name] for name in names).encode("utf-8", "replace") + body
