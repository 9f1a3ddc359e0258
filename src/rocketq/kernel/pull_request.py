"""The fields of a pull request."""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import equal_bytes
    from rocketq.kernel.request_view import credential_field

# Numbers of the fields. The last of them are ignored here.
GROUP, TOPIC, QUEUE_ID, QUEUE_OFFSET, COUNT_MAX, SYS_FLAG = range(6)
COMMIT_OFFSET, HOLD_MS, EXPRESSION, VERSION, TYPE, BYTES_MAX, SOURCE, BROKER_NAME, REQUEST_TYPE = range(6, 15)
NEEDED = 0x3F
KEY_END = b"\x00"


@cython.cclass
class PullRequest:
    """The fields of the last pull read. `bytes_max` is 0 when none was given."""

    def __init__(self):
        self.queue_id = self.queue_offset = self.count_max = self.sys_flag = 0
        self.commit_offset = self.version = self.bytes_max = 0
        self.group_at = self.group_len = self.topic_at = self.topic_len = self.expression_at = self.expression_len = 0

    def read(self, header, p):
        """False when a field is missing, unknown, there twice, or not what plain pulls have."""
        index: cython.int
        field: cython.int
        seen: cython.int = 0
        self.commit_offset = self.version = self.bytes_max = 0
        self.expression_at = self.expression_len = 0
        for index in range(header.count):
            field = pull_field(p, header.name_at[index], header.name_len[index])
            if field < 0:
                field = credential_field(header, p, index)
            if field < 0 or seen & (1 << field) or not header.is_simple(index):
                return False
            seen |= 1 << field
            if not self.take(header, p, index, field):
                return False
        return seen & 0x3F == 0x3F and not header.bad

    def take(self, header, p, index, field):
        if field == 0:
            self.group_at, self.group_len = header.value_at[index], header.value_len[index]
        elif field == 1:
            self.topic_at, self.topic_len = header.value_at[index], header.value_len[index]
        elif field == 2:
            self.queue_id = header.small_number(p, index)
        elif field == 3:
            self.queue_offset = header.number(p, index)
        elif field == 4:
            self.count_max = max(header.small_number(p, index), 1)
        elif field == 5:
            self.sys_flag = header.small_number(p, index)
            return self.sys_flag & ~0x17 == 0
        elif field == 6:
            self.commit_offset = header.number(p, index)
        elif field == 7:
            header.number(p, index)
        elif field == 8:
            self.expression_at, self.expression_len = header.value_at[index], header.value_len[index]
        elif field == 9:
            self.version = header.number(p, index)
        elif field == 10:
            return header.value_len[index] == 0 or header.has_text(p, index, b"TAG", 3)
        elif field == 11:
            self.bytes_max = header.small_number(p, index)
        elif field == 12:
            header.small_number(p, index)
        return True

    def key(self, p):
        """Group, topic and, of a request that brings its own, the subscription: what a route is found by."""
        key: bytes = piece(p, self.group_at, self.group_len) + b"\x00" + piece(p, self.topic_at, self.topic_len)
        if self.sys_flag & 4:
            key += b"\x00" + piece(p, self.expression_at, self.expression_len)
        return key


def pull_field(p, at, count):
    """A field's number by its name, or -1."""
    if count == 13:
        if equal_bytes(p, at, b"consumerGroup", 0, 13):
            return 0
        return 12 if equal_bytes(p, at, b"requestSource", 0, 13) else -1
    if count == 5:
        if equal_bytes(p, at, b"topic", 0, 5):
            return 1
        return 13 if equal_bytes(p, at, b"bname", 0, 5) else -1
    if count == 7:
        if equal_bytes(p, at, b"queueId", 0, 7):
            return 2
        return 5 if equal_bytes(p, at, b"sysFlag", 0, 7) else -1
    if count == 11:
        if equal_bytes(p, at, b"queueOffset", 0, 11):
            return 3
        return 11 if equal_bytes(p, at, b"maxMsgBytes", 0, 11) else -1
    if count == 10:
        if equal_bytes(p, at, b"maxMsgNums", 0, 10):
            return 4
        return 9 if equal_bytes(p, at, b"subVersion", 0, 10) else -1
    if count == 12:
        if equal_bytes(p, at, b"commitOffset", 0, 12):
            return 6
        return 8 if equal_bytes(p, at, b"subscription", 0, 12) else -1
    if count == 20:
        return 7 if equal_bytes(p, at, b"suspendTimeoutMillis", 0, 20) else -1
    if count == 14:
        return 10 if equal_bytes(p, at, b"expressionType", 0, 14) else -1
    return 14 if count == 4 and equal_bytes(p, at, b"ReqT", 0, 4) else -1


def piece(p, at, count):
    if cython.compiled:
        return p[at : at + count]
    else:
        return bytes(p[at : at + count])
