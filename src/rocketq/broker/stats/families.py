"""The metric families of a broker: names, labels, buckets and help sentences.

`APACHE` are the families of Apache RocketMQ 5.3.3 under the names, labels and buckets it exposes, so that dashboards
keep working; where a name contradicts its content, the help sentence has the true unit. `OURS` are RocketQ's own. The
reference page docs/reference/metrics.md is generated from this module.
"""

from __future__ import annotations

from typing import Final

from rocketq.remoting.loop_watch import LOOP_BUSY, LOOP_DELAY
from rocketq.remoting.observability import PROCESS_FAMILIES
from rocketq.runtime.metrics import Family, counter, gauge, histogram

SIZE_BUCKETS: Final = (1024, 4096, 524288, 1048576, 2097152, 4194304)
RPC_BUCKETS_MS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
CREATE_BUCKETS_MS: Final = (10, 100, 1000, 3000, 5000)
FINISH_BUCKETS_S: Final = (5, 60, 600, 3600, 43200, 86400)
DELAY_BUCKETS_S: Final = (60, 600, 3600, 43200, 86400, 259200)
TIMER_BOUNDS_S: Final = (5, 60, 300, 900, 3600, 14400, 28800, 86400)
SECONDS_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
SCAN_BUCKETS_MS: Final = (1, 10, 100, 1000, 2000, 3000)

_STORAGE: Final = ("storage_type", "storage_medium")
_IN: Final = ("topic", "message_type", "is_system")
_LAG: Final = ("consumer_group", "topic", "is_retry", "is_system")

# Apache's: the broker

PERMISSION = gauge("rocketmq_broker_permission", "Permission of the broker: 6 is read and write, 4 read, 2 write.")
TOPICS = gauge("rocketmq_topic_number", "Topics, system topics included.")
GROUPS = gauge("rocketmq_consumer_group_number", "Configured consumer groups, system groups included.")
WATERMARK = gauge("rocketmq_processor_watermark", "Requests that wait in this family of requests.", "processor")
MESSAGES_IN = counter(
    "rocketmq_messages_in_total", "Messages stored, by stored copy: delayed and half messages count twice.", *_IN
)
THROUGHPUT_IN = counter("rocketmq_throughput_in_total", "Bytes of records stored, by stored copy.", *_IN)
MESSAGES_OUT = counter(
    "rocketmq_messages_out_total", "Messages given to pulls and pops.",
    "topic", "consumer_group", "is_system", "is_retry",
)  # fmt: skip
THROUGHPUT_OUT = counter(
    "rocketmq_throughput_out_total", "Bytes of records given to pulls and pops.",
    "topic", "consumer_group", "is_system", "is_retry",
)  # fmt: skip
MESSAGE_SIZE = histogram(
    "rocketmq_message_size", "Bytes of stored records, one observation per send with its average.", SIZE_BUCKETS, *_IN
)
RPC_LATENCY = histogram(
    "rocketmq_rpc_latency_milliseconds", "Milliseconds from reading a request to writing its answer.", RPC_BUCKETS_MS,
    "protocol_type", "request_code", "response_code", "is_long_polling", "result",
)  # fmt: skip
TOPIC_CREATE = histogram(
    "rocketmq_topic_create_execution_time_milliseconds", "Milliseconds of requests that create or change topics.",
    CREATE_BUCKETS_MS, "invocation_status", "is_system",
)  # fmt: skip
GROUP_CREATE = histogram(
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "Milliseconds of requests that create or change consumer groups.", CREATE_BUCKETS_MS, "invocation_status",
)  # fmt: skip
PRODUCER_CONNECTIONS = gauge(
    "rocketmq_producer_connections", "Connections of producers.", "language", "version", "protocol_type"
)
CONSUMER_CONNECTIONS = gauge(
    "rocketmq_consumer_connections", "Connections of consumers by group.",
    "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system",
)  # fmt: skip

# Apache's: consumers

LAG_MESSAGES = gauge(
    "rocketmq_consumer_lag_messages",
    "Messages stored and not committed, of queues whose lag is known (see rocketq_consumer_unknown_queues).", *_LAG,
)  # fmt: skip
LAG_LATENCY = gauge(
    "rocketmq_consumer_lag_latency_milliseconds", "Age in ms of the oldest message that is not committed; 0 without.",
    *_LAG, adds_up=False,
)  # fmt: skip
INFLIGHT = gauge("rocketmq_consumer_inflight_messages", "Messages pulled and not committed.", *_LAG)
QUEUEING_LATENCY = gauge(
    "rocketmq_consumer_queueing_latency_milliseconds", "Age in ms of the oldest message that is not pulled.",
    *_LAG, adds_up=False,
)  # fmt: skip
READY = gauge("rocketmq_consumer_ready_messages", "Messages stored and not pulled.", *_LAG)
SENT_TO_DLQ = counter(
    "rocketmq_send_to_dlq_messages_total", "Messages that became dead letters, by their original topic.",
    "consumer_group", "topic", "is_system",
)  # fmt: skip

# Apache's: transactions

HALF_MESSAGES = gauge("rocketmq_half_messages", "Half messages that are not decided.", "topic")
COMMITTED = counter("rocketmq_commit_messages_total", "Transactions committed.", "topic")
ROLLED_BACK = counter("rocketmq_rollback_messages_total", "Transactions rolled back.", "topic")
FINISH_LATENCY = histogram(
    "rocketmq_finish_message_latency_milliseconds",
    "SECONDS from a half message to its decision (Apache's name has the wrong unit).", FINISH_BUCKETS_S, "topic",
)  # fmt: skip

# Apache's: storage and timers

STORAGE_SIZE = gauge(
    "rocketmq_storage_size_bytes", "Used bytes of the whole file system, as Apache reports it.", *_STORAGE
)
FLUSH_BEHIND = gauge("rocketmq_storage_flush_behind_bytes", "Bytes of the log that are not on disk.", *_STORAGE)
DISPATCH_BEHIND = gauge(
    "rocketmq_storage_dispatch_behind_bytes", "Bytes of the log without queue entries; always 0 here.", *_STORAGE
)
RESERVE_TIME = gauge(
    "rocketmq_storage_message_reserve_time_milliseconds", "Age in ms of the oldest message.", *_STORAGE, adds_up=False
)
TIMER_ENQUEUE_LAG = gauge("rocketmq_timer_enqueue_lag", "Timer messages not in the wheel yet.", *_STORAGE)
TIMER_ENQUEUE_LATENCY = gauge(
    "rocketmq_timer_enqueue_latency_milliseconds", "Age in ms of the oldest timer message not in the wheel.",
    *_STORAGE, adds_up=False,
)  # fmt: skip
TIMER_DEQUEUE_LAG = gauge("rocketmq_timer_dequeue_lag", "Timer messages that are waiting.", *_STORAGE)
TIMER_DEQUEUE_LATENCY = gauge(
    "rocketmq_timer_dequeue_latency_milliseconds", "How late in ms delivery of timer messages is.",
    *_STORAGE, adds_up=False,
)  # fmt: skip
TIMING = gauge("rocketmq_timing_messages", "Timer messages that are waiting, by topic.", *_STORAGE, "topic")
TIMER_ENQUEUED = counter("rocketmq_timer_enqueue_total", "Timer messages put into the wheel.", *_STORAGE, "topic")
TIMER_DEQUEUED = counter("rocketmq_timer_dequeue_total", "Timer messages delivered.", *_STORAGE, "topic")
TIMER_SNAPSHOT = gauge(
    "rocketmq_timer_message_snapshot", "Waiting timer messages due within the bound and after the one before it.",
    *_STORAGE, "timer_bound_s",
)  # fmt: skip
DELAY_LATENCY = histogram(
    "rocketmq_delay_message_latency_seconds", "Seconds for which delayed messages are to wait.", DELAY_BUCKETS_S,
    *_STORAGE, "topic",
)  # fmt: skip

# Apache's: POP

POP_OFFSET_BUFFER = gauge("rocketmq_pop_offset_buffer_size", "Offsets of POP groups that wait to be committed.")
POP_CHECKPOINT_BUFFER = gauge("rocketmq_pop_checkpoint_buffer_size", "Popped batches in memory.")
POP_REVIVE_LAG = gauge(
    "rocketmq_pop_revive_lag_milliseconds", "MESSAGES of the revive log not read yet (Apache's name says ms).",
    "queue_id",
)  # fmt: skip
POP_REVIVE_LATENCY = gauge(
    "rocketmq_pop_revive_latency_milliseconds", "Age in ms of the oldest message of the revive log not read yet.",
    "queue_id", adds_up=False,
)  # fmt: skip
POP_REVIVE_IN = counter(
    "rocketmq_pop_revive_in_message_total", "Checkpoints (CK) and acknowledgements (ACK) written.",
    "consumer_group", "topic", "revive_message_type", "put_status",
)  # fmt: skip
POP_REVIVE_OUT = counter(
    "rocketmq_pop_revive_out_message_total", "Checkpoints (CK) and acknowledgements (ACK) read.",
    "consumer_group", "topic", "queue_id", "revive_message_type",
)  # fmt: skip
POP_REVIVE_RETRY = counter(
    "rocketmq_pop_revive_retry_messages_total", "Popped messages whose invisible time ended.",
    "consumer_group", "topic", "put_status",
)  # fmt: skip
POP_SCAN_TIME = histogram(
    "rocketmq_pop_buffer_scan_time_consume_milliseconds", "Milliseconds of a scan of popped batches.", SCAN_BUCKETS_MS
)

APACHE: Final[tuple[Family, ...]] = (
    PERMISSION, TOPICS, GROUPS, WATERMARK, MESSAGES_IN, THROUGHPUT_IN, MESSAGES_OUT, THROUGHPUT_OUT, MESSAGE_SIZE,
    RPC_LATENCY, TOPIC_CREATE, GROUP_CREATE, PRODUCER_CONNECTIONS, CONSUMER_CONNECTIONS, LAG_MESSAGES, LAG_LATENCY,
    INFLIGHT, QUEUEING_LATENCY, READY, SENT_TO_DLQ, HALF_MESSAGES, COMMITTED, ROLLED_BACK, FINISH_LATENCY,
    STORAGE_SIZE, FLUSH_BEHIND, DISPATCH_BEHIND, RESERVE_TIME, TIMER_ENQUEUE_LAG, TIMER_ENQUEUE_LATENCY,
    TIMER_DEQUEUE_LAG, TIMER_DEQUEUE_LATENCY, TIMING, TIMER_ENQUEUED, TIMER_DEQUEUED, TIMER_SNAPSHOT, DELAY_LATENCY,
    POP_OFFSET_BUFFER, POP_CHECKPOINT_BUFFER, POP_REVIVE_LAG, POP_REVIVE_LATENCY, POP_REVIVE_IN, POP_REVIVE_OUT,
    POP_REVIVE_RETRY, POP_SCAN_TIME,
)  # fmt: skip

# RocketQ's own

BUILD_INFO = gauge("rocketq_build_info", "1; the labels have the version.", "version", "python", "kernel", "loop")
REQUESTS = counter("rocketq_requests_total", "Requests by the path that executed them.", "request_code", "path")
KERNEL_REFUSALS = counter(
    "rocketq_kernel_refusals_total", "Requests that the fast path left to Python, by reason.", "reason"
)
FLUSH_WAITING = gauge("rocketq_flush_waiting", "Answers that wait for the disk or a slave.")
HELD_PULLS = gauge("rocketq_held_pulls", "Requests that wait for messages.", "kind")
QUEUE_LAG_MESSAGES = gauge(
    "rocketq_consumer_queue_lag_messages", "Lag of a queue; only where it is above 0.",
    "consumer_group", "topic", "queue_id",
)  # fmt: skip
QUEUE_LAG_SECONDS = gauge(
    "rocketq_consumer_queue_lag_seconds", "Age of the message at the committed offset; only where the lag is above 0.",
    "consumer_group", "topic", "queue_id", adds_up=False,
)  # fmt: skip
UNKNOWN_QUEUES = gauge(
    "rocketq_consumer_unknown_queues", "Queues whose lag is not known. Their lag is in no other metric.",
    "consumer_group", "topic", "reason",
)  # fmt: skip
MEMBERS = gauge("rocketq_consumer_members", "Members of a group that are online.", "consumer_group")
CONFLICTS = gauge(
    "rocketq_subscription_conflicts", "Different subscriptions of the members of a group.", "consumer_group", "topic"
)
RETRY_MESSAGES = gauge("rocketq_retry_messages", "Messages that wait in the retry topic.", "consumer_group")
DLQ_MESSAGES = gauge("rocketq_dlq_messages", "Dead letters that are stored.", "consumer_group")
DLQ_OLDEST = gauge("rocketq_dlq_oldest_seconds", "Age of the oldest dead letter.", "consumer_group", adds_up=False)
DLQ_EXPIRES = gauge(
    "rocketq_dlq_expires_seconds", "Seconds until retention may delete the oldest dead letter.",
    "consumer_group", adds_up=False,
)  # fmt: skip
HALF_OLDEST = gauge("rocketq_half_oldest_seconds", "Age of the oldest undecided transaction.", "topic", adds_up=False)
TRANSACTION_FINISH = histogram(
    "rocketq_transaction_finish_seconds", "Seconds from a half message to its decision.", FINISH_BUCKETS_S, "topic"
)
DELAY_WAITING = gauge("rocketq_delay_waiting_messages", "Messages that wait in a delay level.", "level")
STORE_BYTES = gauge("rocketq_store_bytes", "Bytes of this store's files.", "part")
DISK_FREE = gauge("rocketq_disk_free_bytes", "Free bytes of the file system.", "path")
DISK_USED = gauge("rocketq_disk_used_ratio", "Used part of the file system, 0 to 1.", "path", adds_up=False)
UNCONSUMED_DELETED = counter(
    "rocketq_unconsumed_deleted_total", "Messages that retention deleted before the group consumed them: data loss.",
    "consumer_group", "topic",
)  # fmt: skip
REFUSED_SENDS = counter("rocketq_refused_sends_total", "Rejected sends by cause.", "reason")
ACCESS = counter(
    "rocketq_access_decisions_total",
    "Decisions of access control outside the fast path: allowed, denied, unauthenticated, blocked, dry-run.",
    "decision",
)
ROLE = gauge("rocketq_role", "1 for the current role.", "role")
REPLICATION_LAG = gauge(
    "rocketq_replication_lag_bytes", "Bytes of the log that a replica has not confirmed; on the master.", "replica"
)
IN_SYNC = gauge("rocketq_replication_in_sync", "1 for a replica that is in sync; on the master.", "replica")
FOLLOWING = gauge("rocketq_replication_connected", "1 while a slave is connected to its master; on slaves.")
CONNECTIONS = gauge("rocketq_connections", "Open connections.", "protocol", "tls")
PAUSED = gauge("rocketq_connections_paused", "Peers that do not read their answers.")
CERTIFICATE_DAYS = gauge(
    "rocketq_tls_certificate_days_left", "Days until the configured TLS certificate expires.", adds_up=False
)
SERIES = gauge("rocketq_metrics_series", "Series of a family in this exposition.", "family")
FOLDED = counter("rocketq_metrics_folded_total", "Series that were folded into __other__ by scrapes.", "family")

OURS: Final[tuple[Family, ...]] = (
    BUILD_INFO, *PROCESS_FAMILIES, LOOP_DELAY, LOOP_BUSY, REQUESTS, KERNEL_REFUSALS, FLUSH_WAITING, HELD_PULLS,
    QUEUE_LAG_MESSAGES, QUEUE_LAG_SECONDS, UNKNOWN_QUEUES, MEMBERS, CONFLICTS, RETRY_MESSAGES, DLQ_MESSAGES,
    DLQ_OLDEST, DLQ_EXPIRES, HALF_OLDEST, TRANSACTION_FINISH, DELAY_WAITING, STORE_BYTES, DISK_FREE, DISK_USED,
    UNCONSUMED_DELETED, REFUSED_SENDS, ACCESS, ROLE, REPLICATION_LAG, IN_SYNC,
    FOLLOWING, CONNECTIONS, PAUSED, CERTIFICATE_DAYS, SERIES, FOLDED,
)  # fmt: skip
