"""Metrics of a cluster under the names of rocketmq-exporter, from a fixed number of requests per broker and round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from rocketq.client.admin import AsyncAdmin
from rocketq.client.fan_out import outcomes
from rocketq.errors import RocketQError
from rocketq.model.lag import queue_lag
from rocketq.protocol.bodies.stats import ConsumeStats, ConsumeStatsList
from rocketq.protocol.names import DLQ_PREFIX, RETRY_PREFIX
from rocketq.runtime.metrics import Family, Labels, Snapshot, gauge

_BROKER: Final = ("cluster", "brokerIP", "broker")
_GROUP_TOPIC: Final = ("cluster", "broker", "topic", "group")
_RUNTIME: Final = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

BROKER_TPS = gauge("rocketmq_broker_tps", "Messages stored per second, last 10 s.", *_BROKER)
BROKER_QPS = gauge("rocketmq_broker_qps", "Messages given to pulls per second, last 10 s.", *_BROKER)
PRODUCER_OFFSET = gauge(
    "rocketmq_producer_offset", "Sum of the next offsets of a consumed topic's queues.", "cluster", "broker", "topic"
)
RETRY_OFFSET = gauge(
    "rocketmq_topic_retry_offset", "Sum of the next offsets of a retry topic's queues.", "cluster", "broker", "topic"
)
DLQ_OFFSET = gauge(
    "rocketmq_topic_dlq_offset",
    "Sum of the next offsets of a dead-letter topic's queues.",
    "cluster",
    "broker",
    "group",
)
PRODUCER_COUNT = gauge("rocketmq_producer_count", "Connected producers.", "cluster", "broker", "group")
CONSUMER_OFFSET = gauge("rocketmq_consumer_offset", "Sum of the committed offsets.", *_GROUP_TOPIC)
CONSUMER_TPS = gauge("rocketmq_consumer_tps", "Messages consumed per second, last minute.", *_GROUP_TOPIC)
GROUP_DIFF = gauge("rocketmq_group_diff", "Lag of a group, of queues whose lag is known.", "group", "topic")
GROUP_RETRY_DIFF = gauge("rocketmq_group_retrydiff", "Lag of a group in its retry topic.", "group", "topic")
GROUP_DLQ_DIFF = gauge("rocketmq_group_dlqdiff", "Dead letters of a group.", "group", "topic")

_RATES: Final = {
    "put_tps": "putTps", "getfound_tps": "getFoundTps", "gettotal_tps": "getTotalTps",
    "gettransfered_tps": "getTransferedTps", "getmiss_tps": "getMissTps",
}  # fmt: skip
_NUMBERS: Final = {
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "putmessage_times_total": "putMessageTimesTotal",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
}
_PREFIX: Final = "rocketmq_brokeruntime_"
RUNTIME: Final[Mapping[str, tuple[Family, str, int]]] = {
    **{
        name: (gauge(_PREFIX + name, f"{key} of the runtime info.", *_RUNTIME), key, 0)
        for name, key in _NUMBERS.items()
    },
    **{
        f"{name}{span}": (gauge(f"{_PREFIX}{name}{span}", f"{key} over {span} s.", *_RUNTIME), key, number)
        for name, key in _RATES.items()
        for number, span in enumerate((10, 60, 600))
    },
}
"""By name: the family, the key in the runtime info, and which of its numbers."""
_TIMES: Final = (
    "0ms", "0to10ms", "10to50ms", "50to100ms", "100to200ms", "200to500ms", "500to1s", "1to2s", "2to3s", "3to4s",
    "4to5s", "5to10s", "10stomore",
)  # fmt: skip
APPEND_TIMES: Final = tuple(gauge(f"{_PREFIX}pmdt_{name}", f"Messages stored in {name}.", *_RUNTIME) for name in _TIMES)
FAMILIES: Final = (
    BROKER_TPS, BROKER_QPS, PRODUCER_OFFSET, RETRY_OFFSET, DLQ_OFFSET, PRODUCER_COUNT, CONSUMER_OFFSET, CONSUMER_TPS,
    GROUP_DIFF, GROUP_RETRY_DIFF, GROUP_DLQ_DIFF, *(family for family, _, _ in RUNTIME.values()), *APPEND_TIMES,
)  # fmt: skip


class ClusterMetrics:
    """Samples of the last round of requests."""

    def __init__(self) -> None:
        self._found = Snapshot()
        self.failure: str | None = "no broker was asked yet"

    async def ask(self, admin: AsyncAdmin) -> None:
        """Send one round: runtime info, progress of all groups, and producers of each broker."""
        found, failures = Snapshot(), dict[str, str]()
        try:
            brokers = (await admin.brokers.cluster()).brokers
        except RocketQError as error:
            self.failure = str(error)
            return
        for name, one in brokers.items():
            runtimes = await outcomes({addr: admin.brokers.status(addr) for addr in one.addrs.values()})
            failures |= {addr: str(error) for addr, error in runtimes.failures.items()}
            for addr, runtime in runtimes.results.items():
                _add_runtime(found, one.cluster, name, addr, runtime)
            master = one.addrs.get(0)
            if master is None or master not in runtimes.results:
                continue
            try:
                _add_progress(found, one.cluster, name, await admin.brokers.consume_stats(master))
                for group, members in (await admin.brokers.producers(name)).items():
                    found.add(PRODUCER_COUNT, (one.cluster, name, group), len(members))
            except RocketQError as error:
                failures[master] = str(error)
        self._found = found
        self.failure = "; ".join(f"{addr}: {why}" for addr, why in failures.items()) or None

    def collect(self, snapshot: Snapshot) -> Iterator[None]:
        for family, series in self._found.families.items():
            for labels, value in series.items():
                snapshot.add(family, labels, value)
            yield


def _add_runtime(found: Snapshot, cluster: str, name: str, addr: str, runtime: Mapping[str, str]) -> None:
    labels = (
        cluster, addr, name, runtime.get("brokerVersionDesc", ""), runtime.get("bootTimestamp", ""),
        runtime.get("brokerVersion", ""),
    )  # fmt: skip
    for family, key, which in RUNTIME.values():
        if (number := _number(runtime.get(key, ""), which)) is not None:
            found.add(family, labels, number)
    times = [part.rpartition(":")[2] for part in runtime.get("putMessageDistributeTime", "").split()]
    for family, count in zip(APPEND_TIMES, times, strict=False):
        if (number := _number(count, 0)) is not None:
            found.add(family, labels, number)
    for family, key in ((BROKER_TPS, "putTps"), (BROKER_QPS, "getTransferedTps")):
        if (number := _number(runtime.get(key, ""), 0)) is not None:
            found.add(family, (cluster, addr, name), number)


def _number(text: str, which: int) -> float | None:
    """One of the numbers of a runtime value; None when it is not there yet."""
    parts = text.split(" ")
    try:
        return float(parts[which])
    except (ValueError, IndexError):
        return None


def _add_progress(found: Snapshot, cluster: str, broker: str, stats: ConsumeStatsList) -> None:
    ends: dict[str, int] = {}
    for groups in stats.groups:
        for group, topics in groups.items():
            for one in topics:
                _add_topic(found, (cluster, broker), group, one, ends)
    for topic, end in ends.items():
        if topic.startswith(RETRY_PREFIX):
            found.add(RETRY_OFFSET, (cluster, broker, topic), end)
        elif topic.startswith(DLQ_PREFIX):
            found.add(DLQ_OFFSET, (cluster, broker, topic.removeprefix(DLQ_PREFIX)), end)
        else:
            found.add(PRODUCER_OFFSET, (cluster, broker, topic), end)


def _add_topic(found: Snapshot, place: Labels, group: str, stats: ConsumeStats, ends: dict[str, int]) -> None:
    for queue, progress in stats.queues.items():
        labels = *place, queue.topic, group
        found.add(CONSUMER_OFFSET, labels, progress.consumer_offset)
        lag = queue_lag(progress.consumer_offset, None, progress.broker_offset).messages
        family = GROUP_DIFF
        if queue.topic.startswith(RETRY_PREFIX):
            family = GROUP_RETRY_DIFF
        elif queue.topic.startswith(DLQ_PREFIX):
            family = GROUP_DLQ_DIFF
        if lag is not None:
            found.add(family, (group, queue.topic), lag)
    if stats.queues:
        topic = next(iter(stats.queues)).topic
        found.add(CONSUMER_TPS, (*place, topic, group), stats.consume_tps)
        ends[topic] = sum(progress.broker_offset for progress in stats.queues.values())
