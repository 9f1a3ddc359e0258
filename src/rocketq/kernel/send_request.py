"""The fields of a send request. Code 10 uses names, 310 and 320 letters:

a producerGroup   b topic   c defaultTopic   d defaultTopicQueueNums   e queueId   f sysFlag   g bornTimestamp
h flag   i properties   j reconsumeTimes   k unitMode   l maxReconsumeTimes   m batch   n bname
"""

from __future__ import annotations

import cython

if not cython.compiled:
    from rocketq.kernel.primitives import equal_bytes
    from rocketq.kernel.request_view import credential_field

NEEDED = 0x1F2  # b e f g h i


@cython.cclass
class SendRequest:
    """The fields of the last send read; `properties` is the index of that field."""

    def __init__(self):
        self.batch = False
        self.queue_id = self.sys_flag = self.born_ms = self.user_flag = 0
        self.group_at = self.group_len = self.topic_at = self.topic_len = 0
        self.properties = 0

    def read(self, header, p):
        """False when a field is missing, unknown, there twice, or not what plain sends have."""
        index: cython.int
        field: cython.int
        seen: cython.int = 0
        self.batch = header.code == 320
        self.group_len = 0
        for index in range(header.count):
            field = named_field(header, p, index) if header.code == 10 else letter_field(header, p, index)
            if field < 0:
                field = credential_field(header, p, index)
            if field < 0 or seen & (1 << field):
                return False
            seen |= 1 << field
            if not self.take(header, p, index, field):
                return False
        return seen & 0x1F2 == 0x1F2 and not header.bad

    def take(self, header, p, index, field):
        if field == 8:
            self.properties = index
            return not (header.wide[index] or header.null[index])
        if not header.is_simple(index):
            return False
        if field == 0:
            self.group_at, self.group_len = header.value_at[index], header.value_len[index]
        elif field == 1:
            self.topic_at, self.topic_len = header.value_at[index], header.value_len[index]
        elif field == 4:
            self.queue_id = header.small_number(p, index)
            return self.queue_id >= 0
        elif field == 5:
            self.sys_flag = header.small_number(p, index)
            return self.sys_flag >= 0 and self.sys_flag & 0xC == 0
        elif field == 6:
            self.born_ms = header.number(p, index)
            return self.born_ms >= 0
        elif field == 7:
            self.user_flag = header.small_number(p, index)
        elif field == 9:
            return header.small_number(p, index) == 0
        elif field == 3 or field == 11:
            header.small_number(p, index)
        elif field == 12:
            if header.has_text(p, index, b"true", 4):
                self.batch = True
                return True
            return header.has_text(p, index, b"false", 5)
        return True


def letter_field(header, p, index):
    """A field's number by its letter, or -1."""
    letter: cython.int = p[header.name_at[index]]
    return letter - 97 if header.name_len[index] == 1 and 97 <= letter <= 110 else -1


def named_field(header, p, index):
    """A field's number by its name, or -1."""
    at: cython.Py_ssize_t = header.name_at[index]
    count: cython.Py_ssize_t = header.name_len[index]
    if count == 5:
        if equal_bytes(p, at, b"topic", 0, 5):
            return 1
        if equal_bytes(p, at, b"batch", 0, 5):
            return 12
        return 13 if equal_bytes(p, at, b"bname", 0, 5) else -1
    if count == 7:
        if equal_bytes(p, at, b"queueId", 0, 7):
            return 4
        return 5 if equal_bytes(p, at, b"sysFlag", 0, 7) else -1
    if count == 13:
        if equal_bytes(p, at, b"producerGroup", 0, 13):
            return 0
        return 6 if equal_bytes(p, at, b"bornTimestamp", 0, 13) else -1
    if count == 12:
        return 2 if equal_bytes(p, at, b"defaultTopic", 0, 12) else -1
    if count == 21:
        return 3 if equal_bytes(p, at, b"defaultTopicQueueNums", 0, 21) else -1
    if count == 4:
        return 7 if equal_bytes(p, at, b"flag", 0, 4) else -1
    if count == 10:
        return 8 if equal_bytes(p, at, b"properties", 0, 10) else -1
    if count == 14:
        return 9 if equal_bytes(p, at, b"reconsumeTimes", 0, 14) else -1
    if count == 8:
        return 10 if equal_bytes(p, at, b"unitMode", 0, 8) else -1
    return 11 if count == 17 and equal_bytes(p, at, b"maxReconsumeTimes", 0, 17) else -1
