"""Topics and their configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import DataVersion, MessageQueue
from rocketq.protocol.flags import TopicFilterType


@body
class TopicConfig(Body):
    topic: str = member("topicName")
    read_queue_count: int = member("readQueueNums", default=16)
    write_queue_count: int = member("writeQueueNums", default=16)
    perm: int = member("perm", default=6)
    filter_type: TopicFilterType = member("topicFilterType", default=TopicFilterType.SINGLE_TAG)
    topic_sys_flag: int = member("topicSysFlag", default=0)
    order: bool = member("order", default=False)
    attributes: dict[str, str] | None = member("attributes", default=None)
    mapping_detail: Any | None = member("mappingDetail", default=None)


@body
class TopicConfigTable(Body):
    """All topics of a broker: an answer, a part of registration, and the file topics.json."""

    data_version: DataVersion = member("dataVersion", factory=DataVersion)
    topics: dict[str, TopicConfig] = member("topicConfigTable", factory=dict)
    mapping_data_version: DataVersion | None = member("mappingDataVersion", default=None)
    mapping_details: dict[str, Any] | None = member("topicQueueMappingDetailMap", default=None)
    mapping_infos: dict[str, Any] | None = member("topicQueueMappingInfoMap", default=None)


@body
class TopicConfigList(Body):
    topics: tuple[TopicConfig, ...] = member("topicConfigList", default=())


@body
class TopicList(Body):
    topics: tuple[str, ...] = member("topicList", default=())
    broker_addr: str | None = member("brokerAddr", default=None)


@body
class QueueRange(Body):
    min_offset: int = member("minOffset", default=0)
    max_offset: int = member("maxOffset", default=0)
    updated_ms: int = member("lastUpdateTimestamp", default=0)


@body
class TopicStats(Body):
    queues: dict[MessageQueue, QueueRange] = member("offsetTable", factory=dict)
    put_tps: float | None = member("topicPutTps", default=None)


QUEUE_TYPE: Final = "queue.type"
BATCH_QUEUES: Final = "BatchCQ"
_CHOICES: Final = {
    QUEUE_TYPE: ("SimpleCQ", BATCH_QUEUES),
    "cleanup.policy": ("DELETE", "COMPACTION"),
    "message.type": ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"),
}
_RESERVE_TIME: Final = "reserve.time"
_RESERVE_TIME_MAX: Final = (1 << 63) - 1
_WHOLE: Final = re.compile(r"-1|\d{1,19}", re.ASCII)


def attribute_fault(attributes: Mapping[str, str]) -> str | None:
    """The first invalid attribute, or None. Unknown names are kept: they may be of later versions."""
    for name, value in attributes.items():
        choices = _CHOICES.get(name)
        if choices is not None and value not in choices:
            return f"attribute {name} is one of {', '.join(choices)}, not {value[:40]!r}"
        if name == _RESERVE_TIME and not (_WHOLE.fullmatch(value) and int(value) <= _RESERVE_TIME_MAX):
            return f"attribute {name} is a number of -1 or more, not {value[:40]!r}"
    if attributes.get(QUEUE_TYPE) == BATCH_QUEUES:
        return f"attribute {QUEUE_TYPE}={BATCH_QUEUES}: this broker makes no batch queues, SimpleCQ only"
    return None
