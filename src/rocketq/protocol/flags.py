"""Bit fields and small enumerations of the wire."""

from __future__ import annotations

from enum import IntEnum, IntFlag, StrEnum


class CommandFlag(IntFlag):
    """Bits of a header's `flag`."""

    RESPONSE = 0x1
    ONEWAY = 0x2


class PullFlag(IntFlag):
    """Bits of a pull's `sysFlag`."""

    COMMIT_OFFSET = 0x01
    HOLD = 0x02
    SUBSCRIPTION = 0x04
    CLASS_FILTER = 0x08
    LITE = 0x10


class Perm(IntFlag):
    """Permission of a topic; 6 is read and write, 7 a template for new topics."""

    INHERIT = 0x1
    WRITE = 0x2
    READ = 0x4
    PRIORITY = 0x8

    @property
    def text(self) -> str:
        letters = (("R", Perm.READ), ("W", Perm.WRITE), ("X", Perm.INHERIT))
        return "".join(letter if bit in self else "-" for letter, bit in letters)


class TopicSysFlag(IntFlag):
    UNIT = 0x1
    UNIT_SUB = 0x2


class Language(IntEnum):
    """Who wrote a header. A hint, never proof: some clients claim to be JAVA."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


class TransactionState(IntEnum):
    """`commitOrRollback` of END_TRANSACTION."""

    UNKNOWN = 0
    COMMIT = 8
    ROLLBACK = 12


class PopInitMode(IntEnum):
    MIN = 0
    MAX = 1


# The members of the following are in Java's order: some clients send the ordinal instead of the name.


class ConsumeType(StrEnum):
    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(StrEnum):
    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"


class ConsumeFromWhere(StrEnum):
    """The three with MIN or MAX in the name are old and mean LAST_OFFSET."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class ConsumeResult(StrEnum):
    CR_SUCCESS = "CR_SUCCESS"
    CR_LATER = "CR_LATER"
    CR_ROLLBACK = "CR_ROLLBACK"
    CR_COMMIT = "CR_COMMIT"
    CR_THROW_EXCEPTION = "CR_THROW_EXCEPTION"
    CR_RETURN_NULL = "CR_RETURN_NULL"


class TopicFilterType(StrEnum):
    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


class RequestMode(StrEnum):
    PULL = "PULL"
    POP = "POP"


class ExpressionType(StrEnum):
    TAG = "TAG"
    SQL92 = "SQL92"
