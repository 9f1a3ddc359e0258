"""The rights that requests need: one table for ACL 1.0, ACL 2.0 and gRPC calls.

A row lists what a request of one code needs: for each resource a set of actions, one of which is enough. Resources come
from the header fields and bodies that the handlers read, and from stored messages where a request only names a place
in the log. A code whose row is SUPER_USERS, or that has no row, is for super users (2.0) and admins (1.0).

ACL 1.0 has no actions but PUB and SUB: PUB stands for Pub, SUB for Sub and Get on topics and groups, and everything
else needs an admin.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol

from rocketq.errors import RemoteProtocolError
from rocketq.protocol.bodies.assignment import AssignmentRequest, BatchAcks, GroupRequestMode, LockRequest
from rocketq.protocol.bodies.clients import CheckClient, Heartbeat
from rocketq.protocol.bodies.groups import GroupConfig, GroupConfigList
from rocketq.protocol.bodies.topics import TopicConfigList
from rocketq.protocol.codes import RequestCode
from rocketq.protocol.command import Command
from rocketq.protocol.names import RETRY_PREFIX
from rocketq.protocol.requests import decode_header


class Action(enum.StrEnum):
    """What a request does with a resource, as ACL 2.0 writes it."""

    PUBLISH = "Pub"
    SUBSCRIBE = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class ResourceKind(enum.StrEnum):
    TOPIC = "Topic"
    GROUP = "Group"
    CLUSTER = "Cluster"


@dataclass(frozen=True, slots=True)
class Resource:
    kind: ResourceKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"


@dataclass(frozen=True, slots=True)
class Need:
    """One of the actions must be allowed on the resource."""

    resource: Resource
    actions: frozenset[Action]

    @property
    def action(self) -> Action:
        """The action that stands for all of them in messages and audit records."""
        return next(action for action in Action if action in self.actions)


class StoredTopics(Protocol):
    """Which topic a stored message belongs to: the real one of half, delayed and timed messages; None: no message."""

    def at(self, log_offset: int) -> str | None: ...

    def of(self, message_id: str) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """A request whose needs are looked for."""

    request: Command
    header: Any
    cluster: str
    stored: StoredTopics | None


class Part(Protocol):
    """One kind of resource that a row names."""

    def needs(self, ask: Ask) -> Iterable[Need]: ...

    def describe(self) -> str: ...


def topic_need(topic: str, actions: frozenset[Action]) -> Need:
    """A retry topic is its group's: whoever sends to it or reads it consumes as that group."""
    if not topic.startswith(RETRY_PREFIX):
        return Need(Resource(ResourceKind.TOPIC, topic), actions)
    group = Resource(ResourceKind.GROUP, topic.removeprefix(RETRY_PREFIX))
    return Need(group, frozenset({Action.SUBSCRIBE}) if Action.PUBLISH in actions else actions)


def group_need(group: str, actions: frozenset[Action]) -> Need:
    """Groups are also named by their retry topics."""
    return Need(Resource(ResourceKind.GROUP, group.removeprefix(RETRY_PREFIX)), actions)


def _need(kind: ResourceKind, name: str, actions: frozenset[Action]) -> Need:
    return topic_need(name, actions) if kind is ResourceKind.TOPIC else group_need(name, actions)


def _words(actions: frozenset[Action]) -> str:
    return " or ".join(action.value for action in Action if action in actions)


@dataclass(frozen=True, slots=True)
class Field:
    """A header field. One that is absent where a handler does not require it needs nothing."""

    kind: ResourceKind
    attribute: str
    actions: frozenset[Action]

    def needs(self, ask: Ask) -> Iterator[Need]:
        if name := getattr(ask.header, self.attribute):
            yield _need(self.kind, name, self.actions)

    def describe(self) -> str:
        return f"{_words(self.actions)} on the {self.attribute.replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class OnCluster:
    actions: frozenset[Action]

    def needs(self, ask: Ask) -> Iterator[Need]:
        yield Need(Resource(ResourceKind.CLUSTER, ask.cluster), self.actions)

    def describe(self) -> str:
        return f"{_words(self.actions)} on the cluster"


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message named by its log offset or id. Where there is none, the handler has nothing to give or change."""

    attribute: str
    actions: frozenset[Action]

    def needs(self, ask: Ask) -> Iterator[Need]:
        named = getattr(ask.header, self.attribute)
        if named is None or ask.stored is None:
            return
        topic = ask.stored.of(named) if isinstance(named, str) else ask.stored.at(named)
        if topic is not None:
            yield topic_need(topic, self.actions)

    def describe(self) -> str:
        return f"{_words(self.actions)} on the stored message's topic"


@dataclass(frozen=True, slots=True)
class InBody:
    """Resources named by the body: `find` yields their kinds and names."""

    find: Callable[[bytes], Iterable[tuple[ResourceKind, str]]]
    actions: frozenset[Action]
    what: str

    def needs(self, ask: Ask) -> Iterator[Need]:
        for kind, name in self.find(ask.request.body):
            yield _need(kind, name, self.actions)

    def describe(self) -> str:
        return f"{_words(self.actions)} on {self.what}"


@dataclass(frozen=True, slots=True)
class Row:
    """What requests of a code need. `anonymous`: NameServers may answer requests without credentials, too."""

    parts: tuple[Part, ...] = ()
    super_users: bool = False
    anonymous: bool = False

    def describe(self) -> str:
        if self.super_users:
            return "super user"
        text = "; ".join(part.describe() for part in self.parts) or "any user"
        return f"{text}, or nobody where anonymousRoutes=true" if self.anonymous else text


PUBLISH, SUBSCRIBE = frozenset({Action.PUBLISH}), frozenset({Action.SUBSCRIBE})
CREATE, UPDATE, DELETE = frozenset({Action.CREATE}), frozenset({Action.UPDATE}), frozenset({Action.DELETE})
GET, LIST_OR_GET = frozenset({Action.GET}), frozenset({Action.LIST, Action.GET})
READ = frozenset({Action.SUBSCRIBE, Action.GET})
"""What consumers read about themselves: Sub implies it."""
COMMIT = frozenset({Action.SUBSCRIBE, Action.UPDATE})

SUPER_USERS: Final = Row(super_users=True)
_TOPIC, _GROUP = ResourceKind.TOPIC, ResourceKind.GROUP


def _row(*parts: Part) -> Row:
    return Row(parts)


def _topic(actions: frozenset[Action], attribute: str = "topic") -> Field:
    return Field(_TOPIC, attribute, actions)


def _group(actions: frozenset[Action], attribute: str = "group") -> Field:
    return Field(_GROUP, attribute, actions)


def _heartbeat(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    """Producers need nothing to say that they are there."""
    for consumer in Heartbeat.decode(body).consumers:
        yield _GROUP, consumer.group
        for subscription in consumer.subscriptions:
            if subscription.topic != RETRY_PREFIX + consumer.group:
                yield _TOPIC, subscription.topic


def _check_client(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    asked = CheckClient.decode(body)
    if asked.group:
        yield _GROUP, asked.group
    yield _TOPIC, asked.subscription.topic


def _locks(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    wish = LockRequest.decode(body)
    yield _GROUP, wish.group
    yield from ((_TOPIC, topic) for topic in dict.fromkeys(queue.topic for queue in wish.queues))


def _new_topics(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    return ((_TOPIC, topic.topic) for topic in TopicConfigList.decode(body).topics)


def _new_group(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    yield _GROUP, GroupConfig.decode(body).group


def _new_groups(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    return ((_GROUP, group.group) for group in GroupConfigList.decode(body).groups)


def _assignment(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    wish = AssignmentRequest.decode(body)
    yield _GROUP, wish.group
    yield _TOPIC, wish.topic


def _request_mode(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    wish = GroupRequestMode.decode(body)
    yield _GROUP, wish.group
    yield _TOPIC, wish.topic


def _acks(body: bytes) -> Iterator[tuple[ResourceKind, str]]:
    acks = BatchAcks.decode(body).acks
    yield from dict.fromkeys(pair for ack in acks for pair in ((_GROUP, ack.group), (_TOPIC, ack.topic)))


_SEND: Final = _row(_topic(PUBLISH))
_CONSUME: Final = _row(_group(SUBSCRIBE), _topic(SUBSCRIBE))
_READ_TOPIC: Final = _row(_topic(READ))
_GET_TOPIC, _GET_GROUP = _row(_topic(GET)), _row(_group(GET))
_GET_CLUSTER, _UPDATE_CLUSTER = _row(OnCluster(GET)), _row(OnCluster(UPDATE))
_LIST_CLUSTER: Final = _row(OnCluster(LIST_OR_GET))
_LOCK: Final = _row(InBody(_locks, SUBSCRIBE, "the group and the topics of the body"))
_ROUTES: Final = Row(anonymous=True)

_C = RequestCode
RIGHTS: Final[Mapping[int, Row]] = MappingProxyType(
    {
        # messages
        _C.SEND_MESSAGE: _SEND,
        _C.SEND_MESSAGE_V2: _SEND,
        _C.SEND_BATCH_MESSAGE: _SEND,
        _C.SEND_REPLY_MESSAGE: _SEND,
        _C.SEND_REPLY_MESSAGE_V2: _SEND,
        _C.RECALL_MESSAGE: _SEND,
        _C.END_TRANSACTION: _row(StoredMessage("half_log_offset", PUBLISH)),
        _C.PULL_MESSAGE: _CONSUME,
        _C.LITE_PULL_MESSAGE: _CONSUME,
        _C.CONSUMER_SEND_MSG_BACK: _row(_group(SUBSCRIBE), StoredMessage("log_offset", SUBSCRIBE)),
        _C.QUERY_MESSAGE: _READ_TOPIC,
        _C.VIEW_MESSAGE_BY_ID: _row(StoredMessage("log_offset", READ)),
        _C.CONSUME_MESSAGE_DIRECTLY: _row(_group(SUBSCRIBE), _topic(SUBSCRIBE), StoredMessage("message_id", SUBSCRIBE)),
        _C.QUERY_CONSUME_QUEUE: _row(_topic(GET), _group(GET)),
        _C.RESUME_CHECK_HALF_MESSAGE: _row(OnCluster(UPDATE)),
        # POP
        _C.POP_MESSAGE: _CONSUME,
        _C.ACK_MESSAGE: _CONSUME,
        _C.PEEK_MESSAGE: _CONSUME,
        _C.CHANGE_MESSAGE_INVISIBLETIME: _CONSUME,
        _C.NOTIFICATION: _CONSUME,
        _C.POLLING_INFO: _row(_group(GET), _topic(GET)),
        _C.POP_ROLLBACK: SUPER_USERS,
        _C.BATCH_ACK_MESSAGE: _row(InBody(_acks, SUBSCRIBE, "each group and topic of the body")),
        # clients
        _C.HEART_BEAT: _row(InBody(_heartbeat, SUBSCRIBE, "each consumer's group and topics")),
        _C.UNREGISTER_CLIENT: _row(_group(SUBSCRIBE, "consumer_group")),
        _C.GET_CONSUMER_LIST_BY_GROUP: _row(_group(READ)),
        _C.CHECK_CLIENT_CONFIG: _row(InBody(_check_client, SUBSCRIBE, "the group and the topic of the body")),
        _C.LOCK_BATCH_MQ: _LOCK,
        _C.UNLOCK_BATCH_MQ: _LOCK,
        _C.QUERY_ASSIGNMENT: _row(InBody(_assignment, SUBSCRIBE, "the group and the topic of the body")),
        _C.SET_MESSAGE_REQUEST_MODE: _row(InBody(_request_mode, UPDATE, "the group and the topic of the body")),
        _C.GET_ALL_MESSAGE_REQUEST_MODE: _GET_CLUSTER,
        # offsets
        _C.QUERY_CONSUMER_OFFSET: _row(_group(READ), _topic(READ)),
        _C.UPDATE_CONSUMER_OFFSET: _row(_group(COMMIT), _topic(COMMIT)),
        _C.SEARCH_OFFSET_BY_TIMESTAMP: _READ_TOPIC,
        _C.GET_MAX_OFFSET: _READ_TOPIC,
        _C.GET_MIN_OFFSET: _READ_TOPIC,
        _C.GET_EARLIEST_MSG_STORETIME: _READ_TOPIC,
        _C.INVOKE_BROKER_TO_RESET_OFFSET: _row(_group(UPDATE), _topic(UPDATE)),
        _C.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _row(_group(GET), _topic(GET)),
        _C.CLONE_GROUP_OFFSET: _row(_group(UPDATE, "source_group"), _group(UPDATE, "target_group"), _topic(UPDATE)),
        _C.QUERY_CORRECTION_OFFSET: _row(_group(GET), _topic(GET)),
        _C.GET_ALL_CONSUMER_OFFSET: _GET_CLUSTER,
        _C.GET_ALL_DELAY_OFFSET: _GET_CLUSTER,
        # topics
        _C.UPDATE_AND_CREATE_TOPIC: _row(_topic(CREATE)),
        _C.UPDATE_AND_CREATE_TOPIC_LIST: _row(InBody(_new_topics, CREATE, "each topic of the body")),
        _C.UPDATE_AND_CREATE_STATIC_TOPIC: _row(_topic(CREATE)),
        _C.DELETE_TOPIC_IN_BROKER: _row(_topic(DELETE)),
        _C.GET_TOPIC_STATS_INFO: _GET_TOPIC,
        _C.GET_TOPIC_CONFIG: _GET_TOPIC,
        _C.QUERY_TOPIC_CONSUME_BY_WHO: _GET_TOPIC,
        _C.GET_ALL_TOPIC_CONFIG: _LIST_CLUSTER,
        _C.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _LIST_CLUSTER,
        # groups
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _row(InBody(_new_group, CREATE, "the group of the body")),
        _C.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _row(InBody(_new_groups, CREATE, "each group of the body")),
        _C.DELETE_SUBSCRIPTIONGROUP: _row(_group(DELETE)),
        _C.UPDATE_AND_GET_GROUP_FORBIDDEN: _row(_group(UPDATE), _topic(UPDATE)),
        _C.GET_SUBSCRIPTIONGROUP_CONFIG: _GET_GROUP,
        _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _LIST_CLUSTER,
        _C.GET_CONSUMER_CONNECTION_LIST: _GET_GROUP,
        _C.GET_CONSUME_STATS: _row(_group(GET), _topic(GET)),
        _C.QUERY_CONSUME_TIME_SPAN: _row(_topic(GET), _group(GET)),
        _C.QUERY_TOPICS_BY_CONSUMER: _GET_GROUP,
        _C.QUERY_SUBSCRIPTION_BY_CONSUMER: _GET_GROUP,
        _C.GET_CONSUMER_RUNNING_INFO: _GET_GROUP,
        # the broker
        _C.UPDATE_BROKER_CONFIG: _UPDATE_CLUSTER,
        _C.GET_BROKER_CONFIG: _GET_CLUSTER,
        _C.TRIGGER_DELETE_FILES: _UPDATE_CLUSTER,
        _C.GET_BROKER_RUNTIME_INFO: _GET_CLUSTER,
        _C.GET_PRODUCER_CONNECTION_LIST: _GET_CLUSTER,
        _C.GET_ALL_PRODUCER_INFO: _GET_CLUSTER,
        _C.VIEW_BROKER_STATS_DATA: _GET_CLUSTER,
        _C.GET_BROKER_CONSUME_STATS: _GET_CLUSTER,
        _C.CLEAN_EXPIRED_CONSUMEQUEUE: _UPDATE_CLUSTER,
        _C.CLEAN_UNUSED_TOPIC: _UPDATE_CLUSTER,
        _C.DELETE_EXPIRED_COMMITLOG: _UPDATE_CLUSTER,
        _C.GET_TIMER_CHECK_POINT: _GET_CLUSTER,
        _C.GET_TIMER_METRICS: _GET_CLUSTER,
        _C.GET_BROKER_HA_STATUS: _GET_CLUSTER,
        _C.GET_BROKER_EPOCH_CACHE: _GET_CLUSTER,
        _C.RESET_MASTER_FLUSH_OFFSET: _UPDATE_CLUSTER,
        _C.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _UPDATE_CLUSTER,
        _C.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _UPDATE_CLUSTER,
        _C.GET_COLD_DATA_FLOW_CTR_INFO: _GET_CLUSTER,
        _C.SET_COMMITLOG_READ_MODE: _UPDATE_CLUSTER,
        _C.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _GET_CLUSTER,
        _C.EXPORT_ROCKSDB_CONFIG_TO_JSON: _GET_CLUSTER,
        # access control
        _C.UPDATE_AND_CREATE_ACL_CONFIG: _UPDATE_CLUSTER,
        _C.DELETE_ACL_CONFIG: _UPDATE_CLUSTER,
        _C.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _UPDATE_CLUSTER,
        _C.GET_BROKER_CLUSTER_ACL_INFO: _GET_CLUSTER,
        _C.GET_BROKER_CLUSTER_ACL_CONFIG: _GET_CLUSTER,
        _C.AUTH_CREATE_USER: _UPDATE_CLUSTER,
        _C.AUTH_UPDATE_USER: _UPDATE_CLUSTER,
        _C.AUTH_DELETE_USER: _UPDATE_CLUSTER,
        _C.AUTH_GET_USER: _GET_CLUSTER,
        _C.AUTH_LIST_USER: _GET_CLUSTER,
        _C.AUTH_CREATE_ACL: _UPDATE_CLUSTER,
        _C.AUTH_UPDATE_ACL: _UPDATE_CLUSTER,
        _C.AUTH_DELETE_ACL: _UPDATE_CLUSTER,
        _C.AUTH_GET_ACL: _GET_CLUSTER,
        _C.AUTH_LIST_ACL: _GET_CLUSTER,
        # NameServer
        _C.GET_ROUTEINFO_BY_TOPIC: _ROUTES,
        _C.GET_BROKER_CLUSTER_INFO: _ROUTES,
        _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _ROUTES,
        _C.GET_TOPICS_BY_CLUSTER: _ROUTES,
        _C.GET_SYSTEM_TOPIC_LIST_FROM_NS: _ROUTES,
        _C.GET_UNIT_TOPIC_LIST: _ROUTES,
        _C.GET_HAS_UNIT_SUB_TOPIC_LIST: _ROUTES,
        _C.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _ROUTES,
        _C.GET_BROKER_MEMBER_GROUP: _ROUTES,
        _C.REGISTER_BROKER: _UPDATE_CLUSTER,
        _C.UNREGISTER_BROKER: _UPDATE_CLUSTER,
        _C.QUERY_DATA_VERSION: _UPDATE_CLUSTER,
        _C.BROKER_HEARTBEAT: _UPDATE_CLUSTER,
        _C.PUT_KV_CONFIG: _UPDATE_CLUSTER,
        _C.GET_KV_CONFIG: _GET_CLUSTER,
        _C.DELETE_KV_CONFIG: _UPDATE_CLUSTER,
        _C.GET_KVLIST_BY_NAMESPACE: _GET_CLUSTER,
        _C.WIPE_WRITE_PERM_OF_BROKER: _UPDATE_CLUSTER,
        _C.ADD_WRITE_PERM_OF_BROKER: _UPDATE_CLUSTER,
        _C.DELETE_TOPIC_IN_NAMESRV: _UPDATE_CLUSTER,
        _C.REGISTER_TOPIC_IN_NAMESRV: _UPDATE_CLUSTER,
        _C.UPDATE_NAMESRV_CONFIG: _UPDATE_CLUSTER,
        _C.GET_NAMESRV_CONFIG: _GET_CLUSTER,
        # not served to users by any broker or NameServer of ours
        **dict.fromkeys(
            (
                _C.QUERY_BROKER_OFFSET,
                _C.GET_TOPIC_CONFIG_LIST,
                _C.GET_TOPIC_NAME_LIST,
                _C.CHECK_TRANSACTION_STATE,
                _C.NOTIFY_CONSUMER_IDS_CHANGED,
                _C.GET_CLIENT_CONFIG,
                _C.SUSPEND_CONSUMER,
                _C.RESUME_CONSUMER,
                _C.RESET_CONSUMER_OFFSET_IN_CONSUMER,
                _C.RESET_CONSUMER_OFFSET_IN_BROKER,
                _C.ADJUST_CONSUMER_THREAD_POOL,
                _C.WHO_CONSUME_THE_MESSAGE,
                _C.RESET_CONSUMER_CLIENT_OFFSET,
                _C.GET_CONSUMER_STATUS_FROM_CLIENT,
                _C.REGISTER_FILTER_SERVER,
                _C.REGISTER_MESSAGE_FILTER_CLASS,
                _C.PUSH_REPLY_MESSAGE_TO_CLIENT,
                _C.ADD_BROKER,
                _C.REMOVE_BROKER,
                _C.NOTIFY_MIN_BROKER_ID_CHANGE,
                _C.EXCHANGE_BROKER_HA_INFO,
                *(code for code in _C if 1001 <= code <= 1013 and code != _C.GET_BROKER_EPOCH_CACHE),
            ),
            SUPER_USERS,
        ),
    }
)

CALLS: Final[Mapping[str, tuple[tuple[ResourceKind, frozenset[Action]], ...]]] = MappingProxyType(
    {
        "SendMessageRequest": ((_TOPIC, PUBLISH),),
        "EndTransactionRequest": ((_TOPIC, PUBLISH),),
        "RecallMessageRequest": ((_TOPIC, PUBLISH),),
        "ReceiveMessageRequest": ((_GROUP, SUBSCRIBE), (_TOPIC, SUBSCRIBE)),
        "AckMessageRequest": ((_GROUP, SUBSCRIBE), (_TOPIC, SUBSCRIBE)),
        "ChangeInvisibleDurationRequest": ((_GROUP, SUBSCRIBE), (_TOPIC, SUBSCRIBE)),
        "ForwardMessageToDeadLetterQueueRequest": ((_GROUP, SUBSCRIBE), (_TOPIC, SUBSCRIBE)),
        "QueryAssignmentRequest": ((_GROUP, SUBSCRIBE), (_TOPIC, SUBSCRIBE)),
        "HeartbeatRequest": ((_GROUP, SUBSCRIBE),),
        "NotifyClientTerminationRequest": ((_GROUP, SUBSCRIBE),),
        "GetOffsetRequest": ((_GROUP, READ), (_TOPIC, READ)),
        "UpdateOffsetRequest": ((_GROUP, COMMIT), (_TOPIC, COMMIT)),
        "QueryOffsetRequest": ((_TOPIC, READ),),
        "PullMessageRequest": ((_GROUP, SUBSCRIBE), (_TOPIC, SUBSCRIBE)),
        "QueryRouteRequest": ((_TOPIC, frozenset({Action.PUBLISH, Action.SUBSCRIBE, Action.GET})),),
    }
)
"""gRPC calls by the name of their request message: what they need on the topic and the group they name. A producer's
heartbeat and termination name no group."""


def call_needs(message: str, topics: Iterable[str] = (), groups: Iterable[str] = ()) -> tuple[Need, ...] | None:
    """What a gRPC call needs that names these topics and groups; None: it has no row, so it is for super users."""
    row = CALLS.get(message)
    if row is None:
        return None
    names = {_TOPIC: tuple(topics), _GROUP: tuple(groups)}
    return tuple(_need(kind, name, actions) for kind, actions in row for name in names.get(kind, ()))


def denied_action(request: Command, resource: str | None) -> str | None:
    """What a denied request wanted to do with the resource that the denial names, or with the first it needs."""
    try:
        needs = needs_of(request, "") or ()
    except RemoteProtocolError:
        return None
    named = [need for need in needs if str(need.resource) == resource] or list(needs[:1])
    return named[0].action.value if named else None


def needs_of(request: Command, cluster: str, stored: StoredTopics | None = None) -> tuple[Need, ...] | None:
    """What a request needs, each resource once; None: it is for super users. RemoteProtocolError where the header or
    body cannot be read: the handler rejects such a request for the same reason."""
    row = RIGHTS.get(request.code, SUPER_USERS)
    if row.super_users:
        return None
    if not row.parts:
        return ()
    reads_header = any(isinstance(part, Field | StoredMessage) for part in row.parts)
    ask = Ask(request, decode_header(request) if reads_header else None, cluster, stored)
    return tuple(dict.fromkeys(need for part in row.parts for need in part.needs(ask)))
