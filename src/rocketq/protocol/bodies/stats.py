"""Consumer progress, statistics, replication state and counts of delayed messages."""

from __future__ import annotations

from rocketq.protocol.bodies.clients import Subscription
from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.bodies.queues import DataVersion, MessageQueue


@body
class QueueProgress(Body):
    """`last_ms` is the store time of the last consumed message, 0 when there is none."""

    broker_offset: int = member("brokerOffset", default=0)
    consumer_offset: int = member("consumerOffset", default=0)
    pull_offset: int | None = member("pullOffset", default=None)
    last_ms: int = member("lastTimestamp", default=0)


@body
class ConsumeStats(Body):
    queues: dict[MessageQueue, QueueProgress] = member("offsetTable", factory=dict)
    consume_tps: float = member("consumeTps", default=0.0)


@body
class ConsumeStatsList(Body):
    """One element per group, inside one ConsumeStats per topic."""

    groups: tuple[dict[str, tuple[ConsumeStats, ...]], ...] = member("consumeStatsList", default=())
    broker_addr: str | None = member("brokerAddr", default=None)
    total_lag: int = member("totalDiff", default=0)


@body
class StatsWindow(Body):
    sum: int = member("sum", default=0)
    tps: float = member("tps", default=0.0)
    average: float = member("avgpt", default=0.0)


@body
class StatsData(Body):
    minute: StatsWindow = member("statsMinute", factory=StatsWindow)
    hour: StatsWindow = member("statsHour", factory=StatsWindow)
    day: StatsWindow = member("statsDay", factory=StatsWindow)


@body
class QueueEntry(Body):
    log_offset: int = member("physicOffset", default=0)
    size: int = member("physicSize", default=0)
    tags_code: int = member("tagsCode", default=0)
    extended: str | None = member("extendDataJson", default=None)
    bit_map: str | None = member("bitMap", default=None)
    passes: bool = member("eval", default=False)
    text: str | None = member("msg", default=None)


@body
class QueueEntries(Body):
    """Entries of a consume queue; `filter_data` is the text `null` for tag filters."""

    subscription: Subscription | None = member("subscriptionData", default=None)
    filter_data: str | None = member("filterData", default=None)
    entries: tuple[QueueEntry, ...] = member("queueData", default=())
    max_offset: int = member("maxQueueIndex", default=0)
    min_offset: int = member("minQueueIndex", default=0)


@body
class ColdReaderStats(Body):
    """What a group has read from the disk in the present window."""

    window_bytes: int = member("coldAcc", default=0)
    last_ms: int = member("lastColdReadTimeMills", default=0)
    since_ms: int = member("createTimeMills", default=0)


@body
class ColdReadStats(Body):
    """`limits` are those an operator gave to single groups."""

    readers: dict[str, ColdReaderStats] = member("runtimeTable", factory=dict)
    limits: dict[str, int] = member("configTable", factory=dict)
    group_bytes_max: int = member("cgColdReadThreshold", default=0)
    total_bytes_max: int = member("globalColdReadThreshold", default=0)
    total_bytes: int = member("globalAcc", default=0)


@body
class ReplicaLink(Body):
    """A replica as its master sees it."""

    addr: str = member("addr", default="")
    confirmed_to: int = member("slaveAckOffset", default=0)
    behind_bytes: int = member("diff", default=0)
    in_sync: bool = member("inSync", default=False)
    bytes_per_second: int = member("transferredByteInSecond", default=0)
    sent_to: int = member("transferFromWhere", default=0)


@body
class MasterLink(Body):
    """The master as a replica sees it; all zeros on a master."""

    last_read_ms: int = member("lastReadTimestamp", default=0)
    last_write_ms: int = member("lastWriteTimestamp", default=0)
    master_flushed_to: int = member("masterFlushOffset", default=0)
    log_end: int = member("maxOffset", default=0)
    bytes_per_second: int = member("transferredByteInSecond", default=0)
    addr: str | None = member("masterAddr", default=None)
    active: bool | None = member("activated", default=None)


@body
class ReplicationState(Body):
    is_master: bool = member("master", default=True)
    log_end: int = member("masterCommitLogMaxOffset", default=0)
    in_sync_count: int = member("inSyncSlaveNums", default=0)
    replicas: tuple[ReplicaLink, ...] = member("haConnectionInfo", default=())
    master: MasterLink = member("haClientRuntimeInfo", factory=MasterLink)


@body
class WaitingCount(Body):
    count: int = member("count", default=0)
    changed_ms: int = member("timeStamp", default=0)


@body
class TimerMetrics(Body):
    """By topic: an answer, and the file timermetrics."""

    data_version: DataVersion = member("dataVersion", factory=DataVersion)
    topics: dict[str, WaitingCount] = member("timingCount", factory=dict)
