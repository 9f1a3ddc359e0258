"""The leaves of the kernel in Python: what primitives.h and sha1.h are to the compiled modules.

Compiled modules take these names from the C headers, interpreted ones from here. Buffers are memoryviews or bytes;
integers are signed as Java's are, and stores wrap as C does.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import zlib
from struct import Struct

_I16, _I32, _I64 = Struct(">h"), Struct(">i"), Struct(">q")
_U16, _U32, _U64 = Struct(">H"), Struct(">I"), Struct(">Q")
_ZEROS = bytes(1 << 16)
_NOT_PLAIN = re.compile(rb'[\x00-\x1f"\\\x80-\xff]')


def load_i16(p, at):
    return _I16.unpack_from(p, at)[0]


def load_i32(p, at):
    return _I32.unpack_from(p, at)[0]


def load_i64(p, at):
    return _I64.unpack_from(p, at)[0]


def store_i16(p, at, value):
    _U16.pack_into(p, at, value & 0xFFFF)


def store_i32(p, at, value):
    _U32.pack_into(p, at, value & 0xFFFFFFFF)


def store_i64(p, at, value):
    _U64.pack_into(p, at, value & 0xFFFFFFFFFFFFFFFF)


def store_hex(p, at, value):
    p[at : at + 16] = b"%016X" % (value & 0xFFFFFFFFFFFFFFFF)


def wrap_u32(value):
    return value & 0xFFFFFFFF


def wrap_i64(value):
    return (value + 0x8000000000000000 & 0xFFFFFFFFFFFFFFFF) - 0x8000000000000000


def signed_i32(value):
    return value - 0x100000000 if value > 0x7FFFFFFF else value


def publish(p, at, size, magic):
    _U64.pack_into(p, at, (size << 32) | (magic & 0xFFFFFFFF))


def copy_bytes(to, to_at, source, source_at, count):
    if count > 0:
        to[to_at : to_at + count] = source[source_at : source_at + count]


def zero_bytes(p, at, end):
    if at < end:
        p[at:end] = bytes(end - at)


def equal_bytes(a, a_at, b, b_at, count):
    return count <= 0 or a[a_at : a_at + count] == b[b_at : b_at + count]


def find_byte(p, at, end, value):
    hit = bytes(p[at:end]).find(value) if at < end else -1
    return at + hit if hit >= 0 else end


def cut_item(p, at, end):
    item_end = find_byte(p, at, end, 2)
    return (item_end - at) << 31 | (find_byte(p, at, item_end, 1) - at)


def end_of_plain(p, at, end):
    hit = _NOT_PLAIN.search(p, at, end) if at < end else None
    return max(at, end) if hit is None else hit.start()


def prefetch(p, at):
    """Only memory that C addresses needs this."""


def prefetch_thing(thing, count):
    """The same of a whole object."""


def place_hash(p, at, count, number):
    """Another number than in C: it is only used for tables in memory."""
    return hash((bytes(p[at : at + count]), number)) & 0xFFFFFFFFFFFFFFFF


def skip_zeros(p, at, end):
    while at < end:
        step = min(end - at, len(_ZEROS))
        chunk = bytes(p[at : at + step])
        if chunk != _ZEROS[:step]:
            return at + step - len(chunk.lstrip(b"\0"))
        at += step
    return end


def find_i32(p, at, end, value):
    wanted = _U32.pack(value & 0xFFFFFFFF)
    while at + 4 <= end:
        step_end = min(end, at + (1 << 20) + 3)
        hit = bytes(p[at:step_end]).find(wanted)
        if hit >= 0:
            return at + hit
        at = step_end - 3
    return -1


def populate_pages(p, at, count):
    return False


def resident_mask(p, at, end):
    return 0  # unknown: Python has no mincore(2)


def send_now(fd, p, count):
    return 0  # the transport sends it all


def crc32_more(crc, p, at, count):
    return zlib.crc32(p[at : at + count], crc) if count > 0 else crc


def body_crc(p, at, count):
    return zlib.crc32(p[at : at + count]) & 0x7FFFFFFF if count > 0 else 0


def prepare_hmac(keys, at, secret, count):
    """Other bytes than in C, which only hmac_sha1() reads: the secret itself, padded."""
    key = bytes(secret[:count]) if count <= 64 else hashlib.sha1(secret[:count]).digest()
    keys[at : at + 64] = key.ljust(64, b"\0")


def hmac_sha1(out, keys, key_at, text, text_len, p, at, count):
    digest = hmac.new(bytes(keys[key_at : key_at + 64]), text[:text_len], hashlib.sha1)
    digest.update(p[at : at + count])
    out[0:20] = digest.digest()


def is_base64_of(digest, p, at):
    return hmac.compare_digest(base64.b64encode(digest[:20]), bytes(p[at : at + 28]))


def new_instance(type_):
    return type_.__new__(type_)


def plain_text(text, blanks):
    if type(text) is not str or not text.isascii() or (text and min(text) < (" " if blanks else "!")) or "\x7f" in text:
        return None
    return text.encode()
