"""Signatures of requests, verified where their frames are parsed.

    signature := Base64(HMAC-SHA1(secret, text))
    text      := the values of all ext fields but Signature, ordered by name, without separators; then the body

A check returns True only for a valid signature. False means that it is wrong, or that the request is not plain: then
rocketq.protocol.acl, which knows every case, decides.
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import copy_bytes, equal_bytes, hmac_sha1, is_base64_of, prepare_hmac
    from rocketq.kernel.request_view import RequestView, is_ascii, unescape_json


@cython.final
@cython.cclass
class Account:
    """An access key with its one or two active secrets, prepared; two allow rotation. `owner` is the caller's."""

    def __init__(self, access_key: bytes, secrets, owner):
        view: cython.uchar[::1]
        if len(secrets) < 1 or len(secrets) > 2:
            raise ValueError(f"an account has one or two secrets, got {len(secrets)}")
        self.access_key = access_key
        self.owner = owner
        self._secret_count = len(secrets)
        self._memory = bytearray(2 * KEY_BYTES)
        if cython.compiled:
            view = self._memory
            self._keys = cython.address(view[0])
        else:
            self._keys = memoryview(self._memory)
        for number, secret in enumerate(secrets):
            self.prepare(number, secret)

    def prepare(self, number, secret):
        prepare_hmac(self._keys, number * KEY_BYTES, secret, len(secret))
        return 0


@cython.final
@cython.cclass
class Accounts:
    """Accounts by access key. The last one found is compared first: requests of a client come together."""

    def __init__(self):
        self._by_key = {}
        self._last = None

    def __len__(self):
        return len(self._by_key)

    def put(self, account: Account):
        """Add an account, or replace the one with its access key."""
        self._by_key[account.access_key] = account
        self._last = None

    def remove(self, access_key: bytes):
        """Forget an account, if there is one."""
        self._by_key.pop(access_key, None)
        self._last = None

    def get(self, access_key: bytes):
        """The account of an access key, or None."""
        return self._by_key.get(access_key)

    def find(self, p, at, count):
        """The account whose access key is these bytes, or None."""
        key: bytes
        account: Account = self._last
        if (
            account is not None
            and len(account.access_key) == count
            and equal_bytes(p, at, account.access_key, 0, count)
        ):
            return account
        if cython.compiled:
            key = p[at : at + count]
        else:
            key = bytes(p[at : at + count])
        account = self._by_key.get(key)
        if account is not None:
            self._last = account
        return account


@cython.final
@cython.cclass
class SignatureCheck:
    """Verifies one request at a time; the texts it builds are its own."""

    def __init__(self):
        view: cython.uchar[::1]
        self._memory = bytearray(VALUES_BYTES_MAX)
        self._header = RequestView()
        self._count = 0
        if cython.compiled:
            view = self._memory
            self._text = cython.address(view[0])
        else:
            self._text = memoryview(self._memory)
            self._order, self._digest = [0] * SIGNED_FIELDS_MAX, bytearray(20)

    def signer_of(self, frame: bytes, accounts: Accounts):
        """The account that signed a whole frame, or None."""
        account: Account
        header: RequestView = self._header
        if len(frame) < 8 or not header.parse(frame, 0, len(frame)) or not header.plain:
            return None
        account = self.account_of(header, frame, accounts)
        if account is None or not self.verify(header, frame, account):
            return None
        return account

    def account_of(self, header, p, accounts):
        """The account that a request names, or None. Nothing is verified yet."""
        index: cython.int
        for index in range(header.count):
            if header.is_named(p, index, b"AccessKey", 9):
                if not header.is_simple(index):
                    return None
                return accounts.find(p, header.value_at[index], header.value_len[index])
        return None

    def verify(self, header, p, account):
        """Whether the request has a signature by one of the account's secrets."""
        claimed: cython.int = self.sort_fields(header, p)
        length: cython.Py_ssize_t
        secret: cython.int
        if claimed < 0 or not header.is_simple(claimed) or header.value_len[claimed] != SIGNATURE_BYTES:
            return False
        length = self.join_values(header, p)
        if length < 0:
            return False
        for secret in range(account._secret_count):
            hmac_sha1(
                self._digest,
                account._keys,
                secret * KEY_BYTES,
                self._text,
                length,
                p,
                header.body_at,
                header.end - header.body_at,
            )
            if is_base64_of(self._digest, p, header.value_at[claimed]):
                return True
        return False

    def sort_fields(self, header, p):
        """Order the signed fields by name; the index of the signature, or -1 when the request is not plain."""
        index: cython.int
        other: cython.int
        place: cython.int
        order: cython.int
        claimed: cython.int = -1
        self._count = 0
        if header.count > SIGNED_FIELDS_MAX:
            return -1
        for index in range(header.count):
            if header.is_named(p, index, b"Signature", 9):
                if claimed >= 0:
                    return -1
                claimed = index
                continue
            if not is_signed_name(p, header.name_at[index], header.name_len[index]):
                return -1
            place = self._count
            while place > 0:
                other = self._order[place - 1]
                order = compare_names(
                    p, header.name_at[other], header.name_len[other], header.name_at[index], header.name_len[index]
                )
                if order == 0:
                    return -1
                if order < 0:
                    break
                self._order[place] = other
                place -= 1
            self._order[place] = index
            self._count += 1
        return claimed

    def join_values(self, header, p):
        """Write the values in their order, escapes undone; how many bytes, or -1 when the request is not plain."""
        index: cython.int
        place: cython.int
        at: cython.Py_ssize_t
        count: cython.Py_ssize_t
        length: cython.Py_ssize_t = 0
        for place in range(self._count):
            index = self._order[place]
            at = header.value_at[index]
            count = header.value_len[index]
            if header.null[index] or header.wide[index] or count > VALUES_BYTES_MAX - length:
                return -1
            if header.escaped[index]:
                length = unescape_json(self._text, length, p, at, at + count)
                if length < 0:
                    return -1
            else:
                copy_bytes(self._text, length, p, at, count)
                length += count
        return length


def is_signed_name(p, at, count):
    """Whether a field's place in the order and its part in the text are certain: Java sorts by UTF-16 units, which for
    ASCII is the order of bytes, and whether _UNIQUE_KEY_QUERY is signed depends on the client."""
    if count == 17 and equal_bytes(p, at, b"_UNIQUE_KEY_QUERY", 0, 17):
        return False
    return is_ascii(p, at, at + count)


def compare_names(p, at, count, other_at, other_count):
    """Negative when the first name comes before the other, positive when behind it, 0 when they are the same."""
    step: cython.Py_ssize_t = 0
    while step < count and step < other_count:
        if p[at + step] != p[other_at + step]:
            return -1 if p[at + step] < p[other_at + step] else 1
        step += 1
    if count == other_count:
        return 0
    return -1 if count < other_count else 1
