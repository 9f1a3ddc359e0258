"""Names with a meaning: message properties, system topics and groups, and what a legal name is."""

from __future__ import annotations

import re
from typing import Final

TOPIC_CHARS_MAX: Final = 127
GROUP_CHARS_MAX: Final = 255

RETRY_PREFIX: Final = "%RETRY%"
DLQ_PREFIX: Final = "%DLQ%"
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"

AUTO_CREATE_TOPIC: Final = "TBW102"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
HALF_OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_EXHAUSTED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
BENCHMARK_TOPIC: Final = "BenchmarkTest"
SELF_TEST_TOPIC: Final = "SELF_TEST_TOPIC"
OFFSET_MOVED_TOPIC: Final = "OFFSET_MOVED_EVENT"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"

SYSTEM_TOPICS: Final = frozenset(
    {
        AUTO_CREATE_TOPIC,
        BENCHMARK_TOPIC,
        CHECK_EXHAUSTED_TOPIC,
        HALF_OP_TOPIC,
        HALF_TOPIC,
        OFFSET_MOVED_TOPIC,
        SCHEDULE_TOPIC,
        SELF_TEST_TOPIC,
        TRACE_TOPIC,
    }
)
"""Beside these, names with SYSTEM_TOPIC_PREFIX and, on a broker, its own, its cluster's and the reply topic's name."""

NOT_FOR_CLIENTS: Final = frozenset(
    {SCHEDULE_TOPIC, HALF_TOPIC, HALF_OP_TOPIC, CHECK_EXHAUSTED_TOPIC, SELF_TEST_TOPIC, OFFSET_MOVED_TOPIC, TIMER_TOPIC}
)
"""Topics no client may send to."""

RESERVED_GROUPS: Final = frozenset(
    {
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_OWNER",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_PULL",
        "CLIENT_INNER_PRODUCER",
        "DEFAULT_CONSUMER",
        "DEFAULT_PRODUCER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_P_GROUP",
        "TOOLS_CONSUMER",
        "__MONITOR_CONSUMER",
    }
)

SETTLES_ONCE: Final = "settlesTransactionsOnce"
"""Among a broker's runtime figures: a repeated commit stores nothing, the opposite decision is refused. Ours only."""

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


class Property:
    """Names of message properties that clients or brokers act on."""

    KEYS: Final = "KEYS"
    TAGS: Final = "TAGS"
    WAIT: Final = "WAIT"
    DELAY: Final = "DELAY"
    UNIQUE_KEY: Final = "UNIQ_KEY"
    TRANSACTION_PREPARED: Final = "TRAN_MSG"
    PRODUCER_GROUP: Final = "PGROUP"
    CHECK_IMMUNITY_SECONDS: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
    INSTANCE_ID: Final = "INSTANCE_ID"
    CORRELATION_ID: Final = "CORRELATION_ID"
    REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
    TTL: Final = "TTL"
    MESSAGE_TYPE: Final = "MSG_TYPE"
    RETRY_TOPIC: Final = "RETRY_TOPIC"
    RECONSUME_TIMES: Final = "RECONSUME_TIME"
    MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
    ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
    CONSUME_START_MS: Final = "CONSUME_START_TIME"
    TIMER_DELAY_SECONDS: Final = "TIMER_DELAY_SEC"
    TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
    TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
    TIMER_OUT_MS: Final = "TIMER_OUT_MS"
    TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
    TIMER_DELETES: Final = "TIMER_DEL_UNIQKEY"
    FAILURE: Final = "ROCKETQ_EXCEPTION"
    """Why consumers failed last, of retried messages and dead letters; ours only."""
    SHARDING_KEY: Final = "__SHARDINGKEY"
    CLUSTER: Final = "CLUSTER"
    REGION: Final = "MSG_REGION"
    TRACE_ON: Final = "TRACE_ON"
    TRANSACTION_ID: Final = "__transactionId__"
    REAL_TOPIC: Final = "REAL_TOPIC"
    REAL_QUEUE_ID: Final = "REAL_QID"
    TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
    TRANSACTION_PREPARED_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
    MIN_OFFSET: Final = "MIN_OFFSET"
    MAX_OFFSET: Final = "MAX_OFFSET"
    PUSH_REPLY_MS: Final = "PUSH_REPLY_TIME"
    ARRIVE_MS: Final = "ARRIVE_TIME"
    POP_HANDLE: Final = "POP_CK"
    FIRST_POP_MS: Final = "1ST_POP_TIME"
    DLQ_ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
    DLQ_ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"

    TRACE_CONTEXT: Final = "TRACE_CONTEXT"
    MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
    MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
    BORN_HOST: Final = "__BORNHOST"
    BORN_MS: Final = "BORN_TIMESTAMP"
    POP_OFFSET: Final = "POP_CK_OFFSET"
    TIMER_ENQUEUE_MS: Final = "TIMER_ENQUEUE_MS"
    TIMER_DEQUEUE_MS: Final = "TIMER_DEQUEUE_MS"
    TIMER_DELAY_LEVEL: Final = "TIMER_DELAY_LEVEL"
    INNER_COUNT: Final = "INNER_NUM"
    INNER_BASE: Final = "INNER_BASE"
    COPY_INFO: Final = "DUP_INFO"
    EXTENDED_UNIQUE_KEY: Final = "EXTEND_UNIQ_INFO"
    PROPERTIES_CRC: Final = "__CRC32#"
    TRANSFER_FLAG: Final = "TRANSFER_FLAG"
    CORRECTION_FLAG: Final = "CORRECTION_FLAG"
    MQ2_FLAG: Final = "MQ2_FLAG"


SYSTEM_PROPERTIES: Final = frozenset(value for name, value in vars(Property).items() if not name.startswith("_"))
"""Applications may not use these names for properties of their own."""


def topic_fault(topic: str) -> str | None:
    """Why this is no legal topic name, for people; None when it is one."""
    return _fault("topic", topic, TOPIC_CHARS_MAX)


def group_fault(group: str, chars_max: int = GROUP_CHARS_MAX) -> str | None:
    """Why this is no legal group name, for people; None when it is one."""
    return _fault("group", group, chars_max)


def is_system_topic(topic: str) -> bool:
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(group: str) -> bool:
    return group in RESERVED_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dlq_topic(group: str) -> str:
    return DLQ_PREFIX + group


def _fault(what: str, name: str, chars_max: int) -> str | None:
    if not name.strip():
        return f"the {what} is blank"
    if not _LEGAL.fullmatch(name):
        return f"the {what} {name[:40]!r} may only have letters, digits, and %|-_"
    if len(name) > chars_max:
        return f"the {what} {name[:40]!r}... is longer than {chars_max} characters"
    return None
