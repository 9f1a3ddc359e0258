"""What a client tells about itself."""

from __future__ import annotations

from rocketq.protocol.bodies.json_body import Body, body, member
from rocketq.protocol.flags import ConsumeFromWhere, ConsumeType, MessageModel

ALL = "*"


@body
class Subscription(Body):
    """One topic of a consumer group. `codes` is only a claim: some clients fill it with other numbers."""

    topic: str = member("topic")
    expression: str = member("subString", default=ALL)
    expression_type: str = member("expressionType", default="TAG")
    tags: tuple[str, ...] = member("tagsSet", default=())
    codes: tuple[int, ...] = member("codeSet", default=())
    version: int = member("subVersion", default=0)
    class_filter: bool = member("classFilterMode", default=False)


@body
class ConsumerData(Body):
    """The defaults are what Java has for members a client leaves out."""

    group: str = member("groupName")
    consume_type: ConsumeType = member("consumeType", default=ConsumeType.CONSUME_PASSIVELY)
    model: MessageModel = member("messageModel", default=MessageModel.CLUSTERING)
    from_where: ConsumeFromWhere = member("consumeFromWhere", default=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET)
    subscriptions: tuple[Subscription, ...] = member("subscriptionDataSet", default=())
    unit_mode: bool = member("unitMode", default=False)


@body
class ProducerData(Body):
    group: str = member("groupName")


@body
class Heartbeat(Body):
    client_id: str = member("clientID")
    producers: tuple[ProducerData, ...] = member("producerDataSet", default=())
    consumers: tuple[ConsumerData, ...] = member("consumerDataSet", default=())
    fingerprint: int | None = member("heartbeatFingerprint", default=None)
    without_subscriptions: bool | None = member("withoutSub", default=None)


@body
class CheckClient(Body):
    """Would the broker take this subscription?"""

    client_id: str = member("clientId", default="")
    group: str = member("group", default="")
    subscription: Subscription = member("subscriptionData")
    namespace: str | None = member("namespace", default=None)
