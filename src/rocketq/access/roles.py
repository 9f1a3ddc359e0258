"""Ready-made rights: what a producer and a consumer need at once, and the steps in which they need it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rocketq.access.rights import (
    COMMIT,
    PUBLISH,
    READ,
    SUBSCRIBE,
    Action,
    Need,
    Resource,
    ResourceKind,
    group_need,
    topic_need,
)
from rocketq.errors import ConfigError
from rocketq.protocol.names import TRACE_TOPIC, dlq_topic, retry_topic

ROLES: Final = ("produce", "consume")


@dataclass(frozen=True, slots=True)
class Grant:
    """A policy entry to be made."""

    resource: Resource
    actions: tuple[Action, ...]


def role_grants(role: str, topic: str, group: str | None) -> tuple[Grant, ...]:
    """The grants of a role. A consumer's retry topic is covered by its group."""
    traces = Grant(Resource(ResourceKind.TOPIC, TRACE_TOPIC), (Action.PUBLISH,))
    if role == "produce":
        return Grant(Resource(ResourceKind.TOPIC, topic), (Action.PUBLISH,)), traces
    if role != "consume":
        raise ConfigError(f"there is no role {role}: {' or '.join(ROLES)}")
    if not group:
        raise ConfigError("the role consume needs a consumer group")
    reads = (Action.SUBSCRIBE, Action.GET)
    return (
        Grant(Resource(ResourceKind.TOPIC, topic), reads),
        Grant(Resource(ResourceKind.GROUP, group), reads),
        Grant(Resource(ResourceKind.TOPIC, dlq_topic(group)), reads),
        traces,
    )


@dataclass(frozen=True, slots=True)
class Step:
    """Something a client does, and what that needs."""

    name: str
    code: int
    needs: tuple[Need, ...]


def consumer_steps(topic: str, group: str) -> tuple[Step, ...]:
    """What a consumer of a group does from its start on."""
    on_group, on_topic = group_need(group, SUBSCRIBE), topic_need(topic, SUBSCRIBE)
    return (
        Step("heartbeat", 34, (on_group, on_topic)),
        Step("find other members", 38, (group_need(group, READ),)),
        Step("read offsets", 14, (group_need(group, READ), topic_need(topic, READ))),
        Step("find the start", 30, (topic_need(topic, READ),)),
        Step("pull", 11, (on_group, on_topic)),
        Step("pull retries", 11, (on_group, topic_need(retry_topic(group), SUBSCRIBE))),
        Step("commit offsets", 15, (group_need(group, COMMIT), topic_need(topic, COMMIT))),
        Step("lock queues (in order)", 41, (on_group, on_topic)),
        Step("send back", 36, (on_group, on_topic)),
        Step("write traces", 310, (topic_need(TRACE_TOPIC, PUBLISH),)),
    )
