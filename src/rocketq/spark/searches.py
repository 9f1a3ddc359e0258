"""Messages looked for from the driver: by time, by key, and a few of them for their size."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from rocketq.errors import RocketQError
from rocketq.model import Record
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.config_text import decode_config
from rocketq.protocol.failures import AccessDeniedError
from rocketq.protocol.headers.offsets import OffsetResponse, SearchOffsetRequest
from rocketq.protocol.headers.pull import QueryMessageRequest, QueryMessageResponse
from rocketq.protocol.messages import decode_records
from rocketq.protocol.names import Property
from rocketq.protocol.properties import decode_properties
from rocketq.spark.broker_calls import BrokerCalls
from rocketq.spark.offsets import QueueKey

log = logging.getLogger(__name__)

QUERY_COUNT_MAX: Final = 64
"""The default maximum of results in a broker's answer."""
QUERY_BYTES_SURE: Final = 4 << 20
"""A longer answer may have been cut for its length."""
SAMPLE_COUNT: Final = 32
END_OF_TIME_MS: Final = (1 << 63) - 1
_FOUND: Final = (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND)


@dataclass(frozen=True, slots=True)
class IndexState:
    """Whether a broker indexes keys, and its maximum of results."""

    is_on: bool
    count_max: int


class Searches:
    def __init__(self, calls: BrokerCalls) -> None:
        self._calls = calls

    def record_bytes(self, queue: QueueKey, offset: int) -> int | None:
        """The mean size of a few messages from here on, None when none can be read."""
        records = self._calls.patiently(lambda: self._calls.pull(queue, offset, SAMPLE_COUNT))
        return sum(record.size for record in records) // len(records) if records else None

    def offset_at(self, queue: QueueKey, ms: int, bounds: tuple[int, int]) -> int:
        """The offset of the first message in these bounds stored at or after this time; their end if there is none.

        Brokers answer with the nearest message or any of a millisecond, so it only starts the search.
        """
        low, high = bounds
        if low >= high:
            return high
        hint = min(max(self._calls.patiently(lambda: self._hinted(queue, ms)), low), high - 1)
        step = 1
        while low < high:  # from the hint outwards in growing steps, then by halves: all before low are older
            if self._is_older(queue, hint, ms):
                low, hint = hint + 1, hint + step
            else:
                high, hint = hint, hint - step
            step *= 2
            if not low <= hint < high:
                hint = (low + high) // 2
        return low

    def by_keys(
        self, topic: str, broker_name: str, keys: Collection[str], ends: Mapping[QueueKey, int]
    ) -> dict[QueueKey, list[int]] | None:
        """Locations of messages with exactly these keys, from the broker's index; None if it may be incomplete."""
        try:
            return self._by_keys(topic, broker_name, keys, ends)
        except RocketQError as error:
            log.info("the index of %s is not used: %s", broker_name, error)
            return None

    def _hinted(self, queue: QueueKey, ms: int) -> int:
        request = SearchOffsetRequest(topic=queue.topic, queue_id=queue.queue_id, timestamp_ms=ms)
        answer = self._calls.call(queue.topic, queue.broker_name, request)
        return max(0, OffsetResponse.decode(answer.ext_fields).queue_offset)

    def _is_older(self, queue: QueueKey, offset: int, ms: int) -> bool:
        """Deleted messages are older than all existing ones."""
        records = self._calls.patiently(lambda: self._calls.pull(queue, offset, 1))
        return not records or records[0].store_ms < ms

    def _by_keys(
        self, topic: str, broker_name: str, keys: Collection[str], ends: Mapping[QueueKey, int]
    ) -> dict[QueueKey, list[int]] | None:
        index = self._index_state(topic, broker_name)
        if not index.is_on:
            return None
        found: dict[QueueKey, set[int]] = {queue: set() for queue in ends}
        log_end = max((self._log_offset_before(queue, end) for queue, end in ends.items() if end), default=-1)
        for key in sorted({each.split(" ")[0] for each in keys}):
            records = self._query(topic, broker_name, key, index.count_max, log_end)
            if records is None:
                return None
            for record in records:
                queue = QueueKey(topic, broker_name, record.queue_id)
                if record.topic == topic and _keys_of(record) in keys and queue in found:
                    found[queue].add(record.queue_offset)
        return {queue: sorted(offsets) for queue, offsets in found.items()}

    def _index_state(self, topic: str, broker_name: str) -> IndexState:
        try:
            answer = self._calls.call(topic, broker_name, None, code=RequestCode.GET_BROKER_CONFIG)
        except AccessDeniedError:  # settings are for administrators: read without the index
            return IndexState(False, QUERY_COUNT_MAX)
        settings = decode_config(answer.body)
        count_max = settings.get("maxMsgsNumBatch", "")
        return IndexState(
            settings.get("messageIndexEnable", "").lower() == "true",
            min(QUERY_COUNT_MAX, int(count_max)) if count_max.isdecimal() else QUERY_COUNT_MAX,
        )

    def _log_offset_before(self, queue: QueueKey, end: int) -> int:
        """The log offset of the queue's last message; the index must cover it."""
        records = self._calls.pull(queue, end - 1, 1)
        return records[0].log_offset if records else -1

    def _query(self, topic: str, broker_name: str, key: str, count_max: int, log_end: int) -> list[Record] | None:
        request = QueryMessageRequest(topic=topic, key=key, count_max=count_max, begin_ms=0, end_ms=END_OF_TIME_MS)
        answer = self._calls.call(topic, broker_name, request, accept=_FOUND)
        if QueryMessageResponse.decode(answer.ext_fields).index_log_offset < log_end:
            return None
        records = decode_records(answer.body) if answer.code == ResponseCode.SUCCESS else []
        was_cut = len(records) >= count_max or len(answer.body) > QUERY_BYTES_SURE
        return None if was_cut else records


def _keys_of(record: Record) -> str | None:
    return decode_properties(record.properties).get(Property.KEYS)
