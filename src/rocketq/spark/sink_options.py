"""What a sink is asked for, read from Spark's options: every key and value checked, each fault in one line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from rocketq.client.core.messages import BODY_BYTES_MAX
from rocketq.protocol.names import NOT_FOR_CLIENTS, group_fault, topic_fault
from rocketq.spark.errors import OptionError
from rocketq.spark.options import Connection, Options, parse_connection, parse_source

GROUP: Final = "spark-rocketmq-writer"
MANIFESTS_IN_CHECKPOINT: Final = "rocketmq-manifests"
SECOND_MS: Final = 1_000


class Guarantee(StrEnum):
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


class BadRecords(StrEnum):
    FAIL = "fail"
    SKIP = "skip"
    DEAD_LETTER = "deadletter"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    connection: Connection
    topic: str | None = None
    """None: taken from the column."""
    group: str = GROUP
    guarantee: Guarantee = Guarantee.AT_LEAST_ONCE
    manifests: Path | None = None
    sends_in_flight: int = 4
    batch_bytes: int = 512 << 10
    timeout_ms: int = 10_000
    retries: int = 8
    transaction_timeout_ms: int = 600_000
    message_bytes_max: int = BODY_BYTES_MAX
    bad_records: BadRecords = BadRecords.FAIL
    dead_letter_topic: str | None = None

    @property
    def is_exactly_once(self) -> bool:
        return self.guarantee is Guarantee.EXACTLY_ONCE


def parse_sink(given: Mapping[str, str] | Options, *, streaming: bool) -> SinkOptions:
    """All options of a write; OptionError names the missing, unknown or invalid one."""
    options = given if isinstance(given, Options) else Options(given)
    guarantee = options.one_of("deliveryGuarantee", tuple(Guarantee))
    bad_records = options.one_of("badRecords", ("fail", "skip", "deadLetter"))
    numbers = {
        "sends_in_flight": options.count("sendsInFlight"),
        "batch_bytes": options.count("batchBytes", at_least=1024),
        "timeout_ms": options.count("sendTimeoutMs"),
        "retries": options.count("sendRetries", at_least=0),
        "transaction_timeout_ms": options.count("transactionTimeoutMs", at_least=SECOND_MS),
        "message_bytes_max": options.count("maxMessageBytes"),
    }
    parsed = SinkOptions(
        connection=parse_connection(options),
        topic=_topic(options, "topic"),
        group=options.text("rocketmq.group.id") or GROUP,
        guarantee=Guarantee(guarantee or Guarantee.AT_LEAST_ONCE),
        manifests=_manifests(options, guarantee == Guarantee.EXACTLY_ONCE, streaming=streaming),
        bad_records=BadRecords(bad_records or BadRecords.FAIL),
        dead_letter_topic=_topic(options, "deadLetterTopic"),
        **{name: number for name, number in numbers.items() if number is not None},
    )
    _refuse_contradictions(options, parsed)
    options.refuse_unknown()
    return parsed


def _topic(options: Options, name: str) -> str | None:
    topic = options.text(name)
    if topic is None:
        return None
    if (fault := topic_fault(topic)) is not None:
        raise OptionError(f"option {name}: {fault}")
    if topic in NOT_FOR_CLIENTS:
        raise OptionError(f"option {name}: {topic} is the broker's own")
    return topic


def _refuse_contradictions(options: Options, parsed: SinkOptions) -> None:
    if (fault := group_fault(parsed.group)) is not None:
        raise OptionError(f"option rocketmq.group.id: {fault}")
    if parsed.bad_records is BadRecords.DEAD_LETTER and parsed.dead_letter_topic is None:
        raise OptionError("option badRecords=deadLetter needs the option deadLetterTopic")
    if parsed.bad_records is not BadRecords.DEAD_LETTER and parsed.dead_letter_topic is not None:
        raise OptionError("option deadLetterTopic goes with badRecords=deadLetter")
    if not parsed.is_exactly_once and options.text("transactionTimeoutMs") is not None:
        raise OptionError("option transactionTimeoutMs goes with deliveryGuarantee=exactly-once")


def _manifests(options: Options, exactly_once: bool, *, streaming: bool) -> Path | None:
    """The folder of the manifests: the option, or a folder within a local checkpoint."""
    location, checkpoint = options.text("manifestLocation"), options.text("checkpointLocation")
    if not exactly_once:
        if location is not None:
            raise OptionError("option manifestLocation goes with deliveryGuarantee=exactly-once")
        return None
    if not streaming:
        raise OptionError("option deliveryGuarantee=exactly-once is for streams: a batch write is at-least-once")
    if location is not None:
        return _folder("manifestLocation", location)
    if checkpoint is not None and urlsplit(checkpoint).scheme in ("", "file"):
        return _folder("checkpointLocation", checkpoint) / MANIFESTS_IN_CHECKPOINT
    raise OptionError("option deliveryGuarantee=exactly-once needs the option manifestLocation, a folder that the "
                      "driver finds again after a restart")  # fmt: skip


def _folder(name: str, location: str) -> Path:
    parts = urlsplit(location)
    if parts.scheme not in ("", "file"):
        raise OptionError(f"option {name} must be a folder of a local or mounted file system, not {location!r}")
    path = Path(unquote(parts.path) if parts.scheme else location)
    if not path.is_absolute():
        raise OptionError(f"option {name} must be an absolute path for exactly-once, not {location!r}")
    return path


def of_source(given: Mapping[str, str]) -> dict[str, str]:
    """All options except those of the sink; the source rejects unknown ones."""
    return _without(given, _sink_names() - _source_names())


def of_sink(given: Mapping[str, str]) -> dict[str, str]:
    return _without(given, _source_names() - _sink_names())


def _without(given: Mapping[str, str], names: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in given.items() if name.lower() not in names}


def _source_names() -> frozenset[str]:
    return _asked({"nameServer": "-", "subscribe": "-"}, lambda options: parse_source(options, streaming=False))


def _sink_names() -> frozenset[str]:
    return _asked({"nameServer": "-"}, lambda options: parse_sink(options, streaming=False))


def _asked(given: Mapping[str, str], parse: Callable[[Options], object]) -> frozenset[str]:
    """Parsing asks for every option there is."""
    options = Options(given)
    parse(options)
    return options.names
