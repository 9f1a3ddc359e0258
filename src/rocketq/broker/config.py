"""Broker settings with Apache's key for each."""

from __future__ import annotations

import enum
import functools
import ipaddress
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final

from rocketq.access.config import AccessConfig
from rocketq.access.config import keys as access_keys
from rocketq.broker.delay.placement import DelayRules
from rocketq.broker.groups.table import GROUP_COUNT_MAX
from rocketq.broker.pipeline.quotas import parse_quotas
from rocketq.broker.pull.filters import FilterRules
from rocketq.broker.pull.held_pulls import HoldLimits
from rocketq.broker.topics.table import TOPIC_COUNT_MAX, TopicRules
from rocketq.errors import ConfigError
from rocketq.filter.bloom import ERROR_PERCENT, GROUPS_EXPECTED, BloomGeometry
from rocketq.protocol.config_text import parse_value, suggest_keys
from rocketq.protocol.metrics_config import exporter_type, parse_labels
from rocketq.protocol.names import TRACE_TOPIC, topic_fault
from rocketq.remoting.address_server import DEFAULT_DOMAIN, DEFAULT_SUBGROUP, AddressServer
from rocketq.remoting.listener_settings import ListenerSettings
from rocketq.runtime.log_levels import parse_levels
from rocketq.store import StoreConfig
from rocketq.store.config import option, require_bounds

TLS_PREFIX: Final = "tls."

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "adminBrokerThreadPoolNums": "16",
    "bitMapLengthConsumeQueueExt": "112",
    "clientCallbackExecutorThreads": "2",
    "clientManageThreadPoolNums": "32",
    "consumerManageThreadPoolNums": "32",
    "diskFallRecorded": "true",
    "endTransactionThreadPoolNums": "24",
    "enableDLegerCommitLog": "false",
    "filterServerNums": "0",
    "heartbeatThreadPoolNums": "2",
    "aclCacheExpiredSecond": "600",
    "aclCacheMaxNum": "1000",
    "aclCacheRefreshSecond": "60",
    "listenPortOfVip": "",
    "messageStorePlugIn": "",
    "pullMessageThreadPoolNums": "20",
    "queryMessageThreadPoolNums": "10",
    "sendMessageThreadPoolNums": "1",
    "serverWorkerThreads": "8",
    "statefulAuthenticationCacheExpiredSecond": "60",
    "statefulAuthenticationCacheMaxNum": "10000",
    "statefulAuthorizationCacheExpiredSecond": "60",
    "statefulAuthorizationCacheMaxNum": "10000",
    "storePathRootDir": "",
    "transferMsgByHeap": "true",
    "transientStorePoolSize": "5",
    "useEpollNativeSelector": "false",
    "userCacheExpiredSecond": "600",
    "userCacheMaxNum": "1000",
    "userCacheRefreshSecond": "60",
    "warmMapedFileEnable": "false",
}
"""Keys of Apache's brokers that have no effect here, with their defaults. Another value is a warning at start and an
error in a request to change settings."""
_PROTECTING: Final[Mapping[str, str]] = {
    "enableDLegerCommitLog": "use haProtocol=fenced for failover",
}
"""Keys without effect that would protect something: another value is an error at start too, with what to do."""
_SHOWN_ONLY: Final = frozenset({"storePathRootDir", "listenPortOfVip"})


class BrokerRole(enum.Enum):
    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig(ListenerSettings):
    """All broker settings; the store's are in `StoreConfig`."""

    host: str = option("bindAddress", "127.0.0.1", "Address the broker listens on.")
    port: int = option(
        "listenPort",
        10911,
        "Main port. The broker also opens this port minus 2 (sends and queries without pulls). 0 picks a free one.",
    )
    ip: str = option(
        "brokerIP1",
        "",
        "Address that clients use to reach the broker. Empty: `bindAddress`, or an address of this machine.",
    )
    cluster: str = option("brokerClusterName", "DefaultCluster", "Cluster the broker belongs to.")
    name: str = option("brokerName", "", "Name shared by a master and its slaves. Empty: the host name.")
    broker_id: int = option("brokerId", 0, "0 is the master; slaves have higher numbers.")
    role: BrokerRole = option(
        "brokerRole", BrokerRole.ASYNC_MASTER, "ASYNC_MASTER, SYNC_MASTER (answers wait for a slave) or SLAVE."
    )
    name_servers: str = option("namesrvAddr", "", "NameServers to register with, HOST:PORT separated by `;`.")
    fetch_name_servers: bool = option(
        "fetchNamesrvAddrByAddressServer",
        False,
        "Without `namesrvAddr`, get the NameServers from an HTTP address server, at start and every 2 minutes.",
    )
    address_server_domain: str = option(
        "rmqAddressServerDomain", DEFAULT_DOMAIN, "Host, or host:port, of the address server. Default port: 8080."
    )
    address_server_subgroup: str = option(
        "rmqAddressServerSubGroup", DEFAULT_SUBGROUP, "Last part of the path at the address server."
    )
    perm: int = option("brokerPermission", 6, "Bit sum: 4 read, 2 write. 4 makes the broker read-only.", high=0xF)
    region: str = option("regionId", "DefaultRegion", "Region stored with messages that can be traced.")

    auto_create_topics: bool = option(
        "autoCreateTopicEnable", True, "Create a topic when the first message for it arrives."
    )
    auto_create_groups: bool = option(
        "autoCreateSubscriptionGroup", True, "Create a consumer group when its first member arrives."
    )
    topic_count_max: int = option(
        "maxTopicNums",
        TOPIC_COUNT_MAX,
        "Topics of the broker, retry and dead-letter topics included. More are not created.",
        low=1,
    )
    group_count_max: int = option(
        "maxSubscriptionGroupNums", GROUP_COUNT_MAX, "Consumer groups of the broker. More are not created.", low=1
    )
    default_queue_count: int = option(
        "defaultTopicQueueNums", 8, "Queues of an automatically created topic, at most.", low=1, high=0xFFFF
    )
    cluster_topic: bool = option("clusterTopicEnable", True, "Create a topic with the name of the cluster.")
    broker_topic: bool = option("brokerTopicEnable", True, "Create a topic with the name of the broker.")
    trace_topic_enabled: bool = option("traceTopicEnable", False, "Create the trace topic at start.")
    trace_topic: str = option("msgTraceTopicName", TRACE_TOPIC, "Topic that receives message traces.")
    trace_on: bool = option("traceOn", True, "Value of the TRACE_ON property stored with messages.")

    accept_sends_from_ms: int = option(
        "startAcceptSendRequestTimeStamp", 0, "Reject sends before this time (epoch milliseconds)."
    )
    reject_transactions: bool = option("rejectTransactionMessage", False, "Reject transaction messages.")
    transaction_timeout_ms: int = option("transactionTimeOut", 6_000, "Age of a half message before its first check.")
    transaction_checks_max: int = option("transactionCheckMax", 15, "Checks of a half message before it is discarded.")
    transaction_check_interval_ms: int = option(
        "transactionCheckInterval", 60_000, "Time between two rounds of transaction checks.", low=10
    )
    fast_failure: bool = option(
        "brokerFastFailureEnable", True, "Reject sends that waited too long instead of executing them late."
    )
    send_wait_ms_max: int = option(
        "waitTimeMillsInSendQueue", 200, "Longest wait of a send before it is rejected as busy.", low=10
    )
    sends_waiting_max: int = option(
        "sendThreadPoolQueueCapacity", 10_000, "Sends that may wait at the same time.", low=10, high=1_000_000
    )

    quotas: str = option(
        "quotas", "", "Rate limits, for example `topic/Orders: 5000 msg/s, 10 MiB/s; group/etl: 1000 msg/s`."
    )

    store_replies: bool = option(
        "storeReplyMessageEnable", True, "Store reply messages whose requester is not connected."
    )
    delay_save_interval_ms: int = option(
        "flushDelayOffsetInterval", 10_000, "Time between two saves of the delay progress.", low=10
    )
    timer_enabled: bool = option("timerWheelEnable", True, "Accept messages with a delivery time to the millisecond.")
    timer_seconds_max: int = option("timerMaxDelaySec", 3 * 86_400, "Longest delay of a timed message.")
    recall_enabled: bool = option("recallMessageEnable", True, "Allow recall of timed messages.")

    young_topic_rule: bool = option(
        "youngTopicRule",
        True,
        "Start new groups at offset 0 while the first message of the queue is still in memory.",
    )
    long_polling: bool = option("longPollingEnable", True, "Hold pulls at the end of a queue until a message arrives.")
    short_polling_ms: int = option("shortPollingTimeMills", 1_000, "Hold time of pulls without long polling.")
    held_pulls_max: int = option(
        "pullThreadPoolQueueCapacity", 100_000, "Pulls that may be held at the same time.", low=1, high=10_000_000
    )
    held_pulls_per_connection_max: int = option(
        "maxHeldPullsPerConnection", 10_000, "Pulls of one connection that may be held at the same time.", low=1
    )
    held_pulls_per_address_max: int = option(
        "maxHeldPullsPerAddress", 50_000, "Pulls from one client address that may be held at the same time.", low=1
    )
    pull_bytes_max: int = option(
        "maxPullBytesOnRequest", 4 << 20, "Largest byte limit that a pull may ask for.", low=1_024
    )
    pull_count_max: int = option(
        "maxPullCountOnRequest", 8_192, "Largest message count that a pull may ask for.", low=1
    )
    pull_in_place: bool = option(
        "pullInPlaceEnable",
        True,
        "Answer pulls of Spark tasks on this machine with file locations, so that they read the files directly.",
    )
    slave_read: bool = option("slaveReadEnable", False, "Send readers of old messages to a slave.")
    cold_flow_control: bool = option(
        "coldDataFlowControlEnable", False, "Limit the rate at which a group may read from disk."
    )
    cold_bytes_max: int = option(
        "cgColdReadThreshold",
        3 << 20,
        "Bytes per second that one group may read from disk, with `coldDataFlowControlEnable`.",
        low=1,
    )
    cold_bytes_max_all: int = option(
        "globalColdReadThreshold",
        100 << 20,
        "Bytes per second that all groups together may read from disk, with `coldDataFlowControlEnable`.",
        low=1,
    )

    ha_protocol: str = option(
        "haProtocol", "classic", "`classic` (Apache 4.x's stream) or `fenced` (replicas with automatic failover)."
    )
    ha_ip: str = option("brokerIP2", "", "Address that slaves use to reach the master. Empty: `brokerIP1`.")
    ha_port: int = option("haListenPort", 0, "Replication port. 0: the main port plus 1.", high=0xFFFF)
    ha_master_addr: str = option(
        "haMasterAddress", "", "Replication address of the master, for a slave without NameServer."
    )
    ha_heartbeat_ms: int = option(
        "haSendHeartbeatInterval", 5_000, "Time between two heartbeats on the replication connection.", low=1
    )
    ha_silence_ms_max: int = option(
        "haHousekeepingInterval", 20_000, "Silence after which a replication connection is closed."
    )
    ha_retry_ms: int = option("haReconnectInterval", 5_000, "Pause before a slave connects again.", low=1)
    ha_batch_bytes: int = option(
        "haTransferBatchSize", 32 << 10, "Largest piece of the log sent to a slave at once.", low=1
    )
    ha_behind_bytes_max: int = option(
        "haSlaveFallbehindMax", 256 << 20, "Lag above which a slave no longer counts for SYNC_MASTER."
    )
    ha_from_last_file: bool = option("syncFromLastFile", False, "A new slave copies from the newest log file only.")
    ha_control: str = option("haControlStore", "", "Control store of fenced replicas: `etcd://HOST:PORT,HOST:PORT`.")
    ha_control_user: str = option("haControlUser", "", "User at etcd.")
    ha_control_password: str = option("haControlPassword", "", "Password at etcd. Hidden in answers.")
    ha_control_ca: str = option("haControlCa", "", "PEM file with the certificate authority of etcd.")
    ha_control_cert: str = option("haControlCert", "", "PEM file with the client certificate for etcd.")
    ha_control_key: str = option("haControlKey", "", "PEM file with the key of the client certificate for etcd.")
    ha_secret_path: str = option(
        "haSecretFile", "", "File with the secret that replicas share. Empty: a secret generated in the control store."
    )
    ha_tls_ca: str = option("haTlsCa", "", "PEM file with the authority of the replicas' certificates. Set: TLS is on.")
    ha_tls_cert: str = option("haTlsCert", "", "PEM file with this replica's certificate for replication over TLS.")
    ha_tls_key: str = option("haTlsKey", "", "PEM file with the key of that certificate.")
    lease_mode: str = option(
        "haLeaseMode", "available", "`available` serves reads without a lease; `strict` serves nothing without one."
    )
    lease_ttl_ms: int = option("haLeaseTtl", 5_000, "Time to live of the master's lease in etcd.")
    lease_trusted_ms: int = option(
        "haLeaseTimeout", 3_000, "Time for which the master trusts its last renewal of the lease."
    )
    min_in_sync: int = option(
        "minInSyncReplicas", 1, "Replicas (master included) that must have a message before it is acknowledged.", low=1
    )
    all_ack: bool = option("allAck", True, "Wait for all in-sync replicas, not only for `minInSyncReplicas`.")
    ha_catch_up_ms: int = option(
        "haMaxTimeSlaveNotCatchup", 15_000, "Time without catching up after which a replica leaves the in-sync set."
    )
    ha_gone_ms: int = option(
        "haSlaveGoneTimeout", 3_000, "Time without a connection after which a replica leaves the in-sync set."
    )
    auto_resync: bool = option("haAutoResync", False, "A replica whose log diverged discards it and copies again.")
    slave_timeout_ms: int = option("slaveTimeout", 3_000, "Longest wait of a send for slaves.")
    slave_table_interval_ms: int = option(
        "slaveTableSyncInterval", 10_000, "Time between two copies of topics, groups and offsets to a slave.", low=1
    )
    slave_offset_check: bool = option(
        "offsetCheckInSlave", False, "A slave checks the offset of pulls and corrects it."
    )

    property_filter: bool = option("enablePropertyFilter", False, "Accept SQL92 filters.")
    retry_filter: bool = option("filterSupportRetry", False, "Apply SQL92 filters to retried messages too.")
    filter_bitmaps: bool = option("enableCalcFilterBitMap", False, "Store filter bitmaps beside queue entries.")
    filter_groups_expected: int = option(
        "expectConsumerNumUseFilter",
        GROUPS_EXPECTED,
        "Groups with SQL92 filters per topic that the bitmaps are sized for.",
        low=1,
        high=100_000,
    )
    filter_error_percent_max: int = option(
        "maxErrorRateOfBloomFilter",
        ERROR_PERCENT,
        "Rate of false positives of the bitmaps, in percent.",
        low=1,
        high=99,
    )
    dead_filter_ms_max: int = option(
        "filterDataCleanTimeSpan", 24 * 3_600_000, "Time after which the filter of a stopped group is removed."
    )

    notify_changes: bool = option(
        "notifyConsumerIdsChangedEnable", True, "Notify consumers when members of their group come or leave."
    )
    client_life_ms: int = option(
        "channelExpiredTimeout", 120_000, "Time without heartbeat after which a client is removed.", low=100
    )
    idle_seconds: int = option(
        "serverChannelMaxIdleTimeSeconds", 120, "Idle time after which a connection is closed.", low=1
    )
    lock_life_ms: int = option("rebalanceLockMaxLiveTime", 60_000, "Time to live of a queue lock.", low=100)
    offset_save_interval_ms: int = option(
        "flushConsumerOffsetInterval", 5_000, "Time between two saves of committed offsets.", low=10
    )

    access: AccessConfig = field(default_factory=AccessConfig)
    """Settings of access control, with keys of their own."""

    force_register: bool = option("forceRegister", True, "Register at every period, also without changes.")
    use_tls: bool = option(
        "useTLS",
        False,
        "Use TLS for connections to NameServers and the master.",
    )
    compressed_register: bool = option("compressedRegister", False, "Compress registrations.")
    register_interval_ms: int = option(
        "registerNameServerPeriod", 30_000, "Time between two registrations; kept within 10,000 to 60,000."
    )
    register_timeout_ms: int = option(
        "registerBrokerTimeoutMills", 6_000, "Longest wait for the answer to a registration.", low=100
    )

    metrics_exporter: str = option(
        "metricsExporterType", "DISABLE", "DISABLE, or PROM: metrics and health pages over HTTP. 0 and 2 are accepted."
    )
    metrics_port: int = option(
        "metricsPromExporterPort", 5557, "Port of /metrics and health pages; 0 picks a free one."
    )
    metrics_host: str = option(
        "metricsPromExporterHost", "", "Address of /metrics and health pages. Empty: `bindAddress`."
    )
    metrics_series_max: int = option("metricsOtelCardinalityLimit", 50_000, "Series of a metric family, at most.")
    metrics_labels: str = option("metricsLabel", "", "Labels added to every series, `name:value` separated by commas.")

    log_level: str = option(
        "logLevel", "", "Log levels by logger, such as `rocketq.store=DEBUG,rocketq=INFO`. Empty: as started."
    )

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", _legal_name(socket.gethostname()))
        if not self.ip:
            object.__setattr__(self, "ip", _address_for(self.host))
        if not self.ha_ip:
            object.__setattr__(self, "ha_ip", self.ip)
        require_bounds(self)
        for valid, what in (
            (_is_plain(self.region, 255), "regionId: up to 255 printable ASCII characters are allowed"),
            (topic_fault(self.trace_topic) is None, f"msgTraceTopicName: {topic_fault(self.trace_topic)}"),
            (self.port == 0 or 2 < self.port < 0xFFFF, f"listenPort {self.port} is outside 3..65534"),
            (self.is_slave or self.broker_id == 0, f"brokerId {self.broker_id} is a slave's: set brokerRole=SLAVE too"),
            (not self.is_slave or self.broker_id > 0, "brokerRole SLAVE needs a brokerId above 0"),
            (self.ha_protocol in ("classic", "fenced"), f"haProtocol={self.ha_protocol} is neither classic nor fenced"),
            (not self.is_fenced or bool(self.ha_control), "haProtocol=fenced needs haControlStore=etcd://host:2379,…"),
            (self.lease_mode in ("strict", "available"), f"haLeaseMode={self.lease_mode} is not strict or available"),
            (
                bool(self.ha_tls_ca) == bool(self.ha_tls_cert) == bool(self.ha_tls_key),
                "haTlsCa, haTlsCert and haTlsKey must be set together",
            ),
            (self.ha_silence_ms_max > self.ha_heartbeat_ms, "haHousekeepingInterval is below haSendHeartbeatInterval"),
            (self.metrics_port <= 0xFFFF, f"metricsPromExporterPort {self.metrics_port} is outside 0..65535"),
            (self.metrics_series_max > 0, "metricsOtelCardinalityLimit must be above 0"),
            (_is_address(self.ip), f"brokerIP1 {self.ip!r} is not an IP address"),
            (_is_address(self.ha_ip), f"brokerIP2 {self.ha_ip!r} is not an IP address"),
        ):
            if not valid:
                raise ConfigError(what)
        self.check_limits()
        parse_quotas(self.quotas)
        exporter_type(self.metrics_exporter)
        parse_levels(self.log_level)
        parse_labels(self.metrics_labels)

    @classmethod
    def from_java(cls, settings: Mapping[str, str], **given: Any) -> BrokerConfig:
        """From Apache's keys; `given` overrides them. Unknown keys are ignored here, see `unknown_keys`."""
        for key, hint in _PROTECTING.items():
            if key in ineffective_settings(settings):
                raise ConfigError(f"{key}={settings[key].strip()} has no effect: {hint}")
        own = {"access": AccessConfig.from_java(settings)} | parse_settings(settings) | given
        addr = str(own.get("ip", ""))
        if "host" not in own and _is_address(addr) and not ipaddress.ip_address(addr).is_loopback:
            own["host"] = "::" if ":" in addr else "0.0.0.0"  # where clients can reach what is announced
        return cls(**own)

    @property
    def is_fenced(self) -> bool:
        """Whether this broker is a fenced replica, which may be elected master."""
        return self.ha_protocol == "fenced"

    def to_java(self) -> dict[str, str]:
        """Every key with its value, as texts."""
        own = {item.metadata["key"]: to_text(getattr(self, item.name)) for item in _own_fields()}
        return own | self.access.to_java()

    @property
    def is_slave(self) -> bool:
        return self.role is BrokerRole.SLAVE

    @property
    def name_server_addrs(self) -> tuple[str, ...]:
        parts = (part.strip() for part in re.split("[;,]", self.name_servers))
        return tuple(dict.fromkeys(part for part in parts if part))

    @property
    def address_server(self) -> AddressServer | None:
        """Where NameServer addresses are fetched; None when they are configured."""
        if not self.fetch_name_servers or self.name_server_addrs:
            return None
        return AddressServer(self.address_server_domain, self.address_server_subgroup)

    @property
    def register_period_ms(self) -> int:
        return min(max(self.register_interval_ms, 10_000), 60_000)

    @property
    def hold_limits(self) -> HoldLimits:
        return HoldLimits(
            total=self.held_pulls_max,
            per_connection=self.held_pulls_per_connection_max,
            per_address=self.held_pulls_per_address_max,
        )

    @property
    def filter_rules(self) -> FilterRules:
        return FilterRules(by_properties=self.property_filter, for_retries=self.retry_filter)

    @property
    def bloom_geometry(self) -> BloomGeometry:
        return BloomGeometry.of(self.filter_error_percent_max, self.filter_groups_expected)

    def delay_rules(self, levels: int) -> DelayRules:
        return _delay_rules(levels, self.timer_enabled, self.timer_seconds_max)

    def topic_rules(self, delay_levels: int) -> TopicRules:
        return TopicRules(
            cluster=self.cluster,
            broker_name=self.name,
            auto_create=self.auto_create_topics,
            default_queue_count=self.default_queue_count,
            cluster_topic=self.cluster_topic,
            broker_topic=self.broker_topic,
            trace_topic=self.trace_topic if self.trace_topic_enabled else None,
            delay_levels=delay_levels,
        )


@functools.lru_cache(maxsize=8)  # called for every message
def _delay_rules(levels: int, timer_enabled: bool, timer_seconds_max: int) -> DelayRules:
    return DelayRules(levels, timer_enabled=timer_enabled, timer_delay_ms_max=timer_seconds_max * 1000)


def unknown_keys(settings: Mapping[str, str]) -> list[str]:
    """Keys that neither the broker nor its store has."""
    known = _known_keys()
    return [key for key in settings if key not in known and not key.startswith(TLS_PREFIX)]


def ineffective_settings(settings: Mapping[str, str]) -> list[str]:
    """Keys without effect that are set to something else than their default."""
    return [
        key
        for key, text in settings.items()
        if key in WITHOUT_EFFECT
        and key not in _SHOWN_ONLY
        and text.strip().lower() not in ("", WITHOUT_EFFECT[key].lower())
    ]


def describe_unknown(keys: Iterable[str]) -> str:
    """Unknown keys, each with the most similar known key."""
    return suggest_keys(keys, _known_keys())


def _known_keys() -> frozenset[str]:
    return frozenset({*_fields_by_key(), *store_keys(), *access_keys(), *WITHOUT_EFFECT})


def parse_settings(settings: Mapping[str, str]) -> dict[str, Any]:
    """Known settings by field name; ConfigError names an invalid one."""
    known = _fields_by_key()
    return {
        known[key].name: parse_value(key, text, known[key].default) for key, text in settings.items() if key in known
    }


def store_keys() -> dict[str, str]:
    """The store's keys with their field names."""
    return {item.metadata["key"]: item.name for item in fields(StoreConfig) if "key" in item.metadata}


def store_settings(config: StoreConfig) -> dict[str, str]:
    """The store's keys with their values, as texts."""
    return {key: to_text(getattr(config, name)) for key, name in store_keys().items()}


def to_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(getattr(value, "value", value))


def _own_fields() -> list[Any]:
    return [item for item in fields(BrokerConfig) if "key" in item.metadata]


def _fields_by_key() -> dict[str, Any]:
    return {item.metadata["key"]: item for item in _own_fields()}


def _legal_name(host_name: str) -> str:
    return re.sub("[^a-zA-Z0-9_-]", "-", host_name) or "broker"


def _is_plain(text: str, chars_max: int) -> bool:
    return len(text) <= chars_max and text.isascii() and (text.isprintable() or not text)


def _is_address(text: str) -> bool:
    try:
        return not ipaddress.ip_address(text).is_unspecified
    except ValueError:
        return False


def _address_for(host: str) -> str:
    """The address to register for listening at `host`: the address itself, or one of this machine's addresses."""
    if _is_address(host):
        return host
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None, family)}
    except OSError:
        found = set()
    outward = sorted(str(addr) for addr in found if not ipaddress.ip_address(addr).is_loopback)
    return outward[0] if outward else ("::1" if family == socket.AF_INET6 else "127.0.0.1")
