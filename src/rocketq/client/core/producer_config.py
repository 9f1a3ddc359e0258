"""How a producer sends."""

from __future__ import annotations

from dataclasses import dataclass

from rocketq.client.core.batches import BATCH_BYTES_MAX, Batching
from rocketq.client.core.fault_latency import FaultLatencyConfig
from rocketq.client.core.messages import BODY_BYTES_MAX, COMPRESS_FROM_BYTES, Packing
from rocketq.client.core.retries import RETRIED_CODES, RetryPolicy
from rocketq.errors import ConfigError
from rocketq.protocol.compression import Compression
from rocketq.protocol.names import AUTO_CREATE_TOPIC, TRACE_TOPIC, group_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    send_timeout_ms: int = 3_000
    """Bounds a whole send: waiting for room, looking for the route, all tries."""
    attempts_max: int = 3
    attempt_timeout_ms: int | None = None
    """Of each try but the last; None: a try may take all the time there is."""
    retried_codes: frozenset[int] = RETRIED_CODES
    retry_when_not_stored_ok: bool = False
    """Whether a message that is stored, but not as safely as asked for, is sent to another broker too."""
    fault_latency: FaultLatencyConfig | None = None
    """Pass over brokers that are slow or failing."""
    body_bytes_max: int = BODY_BYTES_MAX
    compress_from_bytes: int = COMPRESS_FROM_BYTES
    compression: Compression = Compression.ZLIB
    compress_level: int = 5
    new_topic_queues: int = 4
    """Of a topic that does not exist yet, where brokers make topics by themselves."""
    template_topic: str = AUTO_CREATE_TOPIC
    batching: Batching | None = None
    """Let sends that are under way at the same time share requests."""
    batch_bytes_max: int = BATCH_BYTES_MAX
    """Of one request of `send_batch`; longer batches are split."""
    in_flight_count_max: int = 10_000
    in_flight_bytes_max: int = 100 << 20
    """With so much under way further sends wait, within their timeout."""
    checks_max: int = 2_000
    """Transaction checks that wait; further ones are dropped, and asked again by the broker."""
    checks_at_once: int = 1
    trace: bool = False
    """Tell the trace topic of every message."""
    trace_topic: str = TRACE_TOPIC

    def __post_init__(self) -> None:
        for name in (
            "send_timeout_ms",
            "attempts_max",
            "body_bytes_max",
            "compress_from_bytes",
            "new_topic_queues",
            "batch_bytes_max",
            "in_flight_count_max",
            "in_flight_bytes_max",
            "checks_max",
            "checks_at_once",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is at least 1")
        if self.attempt_timeout_ms is not None and self.attempt_timeout_ms < 1:
            raise ConfigError("attempt_timeout_ms is at least 1")

    def packing(self) -> Packing:
        return Packing(
            body_bytes_max=self.body_bytes_max,
            compress_from_bytes=self.compress_from_bytes,
            compression=self.compression,
            compress_level=self.compress_level,
        )

    def retry_policy(self) -> RetryPolicy:
        return RetryPolicy(
            attempts_max=self.attempts_max,
            codes=self.retried_codes,
            when_not_stored_ok=self.retry_when_not_stored_ok,
            attempt_timeout_ms=self.attempt_timeout_ms,
        )


def check_group(group: str) -> None:
    """ConfigError for a name that no group may have."""
    if not isinstance(group, str):
        raise ConfigError(f"a group is text, not {type(group).__name__}")
    if (fault := group_fault(group)) is not None:
        raise ConfigError(fault)
    if group == "DEFAULT_PRODUCER":
        raise ConfigError("DEFAULT_PRODUCER is nobody's group: give yours a name")
