"""Queue assignment by the broker, for clients that do not rebalance themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from rocketq.broker.admin.settings import Settings
from rocketq.broker.groups.consumer_groups import ConsumerGroups
from rocketq.broker.groups.table import GroupTable
from rocketq.broker.topics.table import TopicTable
from rocketq.protocol.bodies import lazy_tuple
from rocketq.protocol.bodies.assignment import (
    Assignment,
    AssignmentAnswer,
    AssignmentRequest,
    GroupRequestMode,
    RequestModes,
)
from rocketq.protocol.bodies.queues import MessageQueue
from rocketq.protocol.bodies.routes import TopicRoute
from rocketq.protocol.codes import RequestCode, ResponseCode
from rocketq.protocol.flags import MessageModel, Perm, RequestMode
from rocketq.protocol.names import RETRY_PREFIX
from rocketq.remoting import Connection, Handlers, Reply, Request, RequestRejected
from rocketq.runtime.slices import collect

Strategy = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]
"""Arguments: sorted queues, the client's index among the sorted client ids, number of clients."""


def allocate(
    strategy: str | None, queues: Sequence[MessageQueue], client_ids: Sequence[str], client_id: str
) -> tuple[MessageQueue, ...] | None:
    """The client's queues; None for an unknown strategy or a client that is not a member."""
    rule = STRATEGIES.get(strategy or "AVG")
    if rule is None:
        return None
    clients = sorted(client_ids)
    if client_id not in clients:
        return None
    ordered = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    return tuple(rule(ordered, clients.index(client_id), len(clients)))


def _average(queues: Sequence[MessageQueue], place: int, count: int) -> list[MessageQueue]:
    """Contiguous ranges; the first clients get one more queue if the division leaves a remainder."""
    share, rest = divmod(len(queues), count)
    start = place * share + min(place, rest)
    return list(queues[start : start + share + (1 if place < rest else 0)])


def _circle(queues: Sequence[MessageQueue], place: int, count: int) -> list[MessageQueue]:
    """Round robin."""
    return list(queues[place::count])


STRATEGIES: dict[str, Strategy] = {"AVG": _average, "AVG_BY_CIRCLE": _circle}


FindRoute = Callable[[str], Awaitable[TopicRoute | None]]


@dataclass(frozen=True, slots=True)
class AssignmentPorts:
    settings: Settings
    topics: TopicTable
    groups: GroupTable
    consumers: ConsumerGroups[Connection]
    find_route: FindRoute
    modes: dict[tuple[str, str], GroupRequestMode] = field(default_factory=dict)


handlers: Handlers[AssignmentPorts] = Handlers()


@handlers.on(RequestCode.QUERY_ASSIGNMENT)
async def query(request: Request[None], ports: AssignmentPorts) -> Reply:
    """An answer without a list means: keep the current assignment."""
    wish = AssignmentRequest.decode(request.body)
    queues = await _queues_of(wish.topic, ports)
    if not queues:
        return Reply(body=AssignmentAnswer())
    if wish.model is MessageModel.BROADCASTING:
        return Reply(body=_answer(tuple(queues)))
    client_ids = [member.client_id for member in ports.consumers.members(wish.group)]
    share = allocate(wish.strategy, queues, client_ids, wish.client_id)
    return Reply(body=AssignmentAnswer() if share is None else _answer(share))


def _answer(queues: tuple[MessageQueue, ...]) -> AssignmentAnswer:
    return AssignmentAnswer(assignments=lazy_tuple(_pulled, queues))


def _pulled(queue: MessageQueue) -> Assignment:
    return Assignment(queue=queue, mode=RequestMode.PULL)


async def _queues_of(topic: str, ports: AssignmentPorts) -> list[MessageQueue]:
    """All readable queues of the cluster; only this broker's if no NameServer answers."""
    route = await ports.find_route(topic)
    if route is not None:
        return await collect(
            MessageQueue(topic=topic, broker_name=data.broker_name, queue_id=queue_id)
            for data in route.queues
            if data.perm & Perm.READ
            for queue_id in range(data.read_queue_count)
        )
    known = ports.topics.get(topic)
    if known is None or not known.perm & Perm.READ:
        return []
    name = ports.settings.config.name
    return [MessageQueue(topic=topic, broker_name=name, queue_id=number) for number in range(known.read_queue_count)]


@handlers.on(RequestCode.SET_MESSAGE_REQUEST_MODE)
def set_mode(request: Request[None], ports: AssignmentPorts) -> Reply:
    wish = GroupRequestMode.decode(request.body)
    if wish.topic.startswith(RETRY_PREFIX):
        raise RequestRejected(
            ResponseCode.NO_PERMISSION, "the mode of a retry topic cannot be changed: it is always pulled"
        )
    if wish.topic not in ports.topics:
        raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {wish.topic} does not exist")
    if ports.groups.get(wish.group) is None:
        remark = f"consumer group {wish.group} does not exist"
        raise RequestRejected(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
    if wish.mode is not RequestMode.PULL:
        raise RequestRejected(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "POP is not supported")
    ports.modes[wish.topic, wish.group] = wish
    return Reply()


@handlers.on(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
def all_modes(request: Request[None], ports: AssignmentPorts) -> Reply:
    modes: dict[str, dict[str, GroupRequestMode]] = {}
    for (topic, group), mode in ports.modes.items():
        modes.setdefault(topic, {})[group] = mode
    return Reply(body=RequestModes(modes=modes))
